//! What a benchmark runs on.

pub(crate) fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let name = name.map_or("unknown CPU", |(_, name)| name);
    // As CI runs it, to see that it works.
    let build = if cfg!(debug_assertions) { "; NOT OPTIMIZED, so these figures say nothing" } else { "" };
    format!("{name}, {cores} cores{build}")
}
