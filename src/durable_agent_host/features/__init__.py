"""The features that an app can give its agents: a folder each, which the kernel does not import."""
