// Words and figures for states, times, tokens and costs

const STATES = {
  completed: "good", failed: "bad", rejected: "bad", cancelled: "warn", running: "busy", queued: "warn", incomplete: "warn", refused: "warn",
  waiting: "warn", unreadable: "bad", crashed: "bad", suspended: "warn", postponed: "warn", lost: "bad", success: "good",
  error: "bad", denied: "warn", stopped: "warn", unknown: "bad", invalid_arguments: "bad",
  terminated: "warn", pending: "busy",
};
const words = (name) => String(name).replaceAll("_", " ");
const state = (name) => el("span", { class: `state ${STATES[name] ?? ""}` }, words(name));
const clock = (time) => (time ? new Date(time).toLocaleString([], { dateStyle: "short", timeStyle: "medium" }) : "");

// What something cost; nothing where the host has no price.
const costs = (cost) => (cost === undefined || cost === null ? null : `cost ${cost > 0 && cost < 1e-6 ? "<0.000001" : cost.toLocaleString([], { minimumFractionDigits: 2, maximumFractionDigits: cost < 1 ? 6 : 2 })}`);
const tokens = (usage) => `${usage.input_token_count ?? 0} in, ${usage.output_token_count ?? 0} out`;
const number = (count, name) => `${count.toLocaleString()} ${name}${count === 1 ? "" : "s"}`;

function duration(milliseconds) {
  if (!Number.isFinite(milliseconds)) return "";
  if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  if (milliseconds < 60000) return `${(milliseconds / 1000).toFixed(1)} s`;
  const minutes = Math.floor(milliseconds / 60000);
  return minutes < 60 ? `${minutes} min ${Math.round((milliseconds % 60000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
