//! What the kernel knows of this process.

use std::time::Duration;

use anyhow::{Context, Result};

/// Bytes in memory now.
pub(crate) fn resident() -> Result<u64> {
    // More than the allocator has at hand, at which it gives back what it has kept for long enough. Here, so that every figure has it.
    drop(std::hint::black_box(vec![0_u8; 1 << 20]));
    let statm = std::fs::read_to_string("/proc/self/statm").context("no /proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("no second number")?.parse()?;
    Ok(pages * PAGE)
}

/// Bytes in memory when the allocator has had time to give back what it does not need: mimalloc waits for a second.
pub(crate) fn settled() -> Result<u64> {
    for _ in 0..15 {
        std::thread::sleep(Duration::from_millis(100));
        resident()?;
    }
    resident()
}

/// The most bytes that ever were.
pub(crate) fn peak() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("no /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// For how long this thread was ready to run and had no core; nothing if the kernel does not say.
pub(crate) fn without_core() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(schedstat.split(' ').nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Of the machines that this runs on.
const PAGE: u64 = 4096;
