import { defineConfig } from "vite";
import copilotkit from "./copilotkit/runtime.js";

export default defineConfig({
  esbuild: { jsx: "automatic" },
  plugins: [{
    name: "copilotkit",
    configureServer: ({ middlewares }) => {
      middlewares.use((request, response, next) => request.url.startsWith("/runtime") ? copilotkit(request, response) : next());
    },
  }],
  server: {
    proxy: {
      "/api": {
        target: "http://127.0.0.1:7071", // by the name that the browser has called
        configure: (proxy) => { // a connection that the host breaks is broken for the page, too
          proxy.on("proxyRes", (answer, _, response) => answer.on("aborted", () => response.destroy()));
        },
      },
    },
  },
});
