import { defineConfig } from "vite";

export default defineConfig({
  server: { proxy: { "/api": { target: "http://127.0.0.1:7071" } } }, // by the name that the browser has called
});
