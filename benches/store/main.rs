//! What does a counter take, and what does a flood of keys do? Memory, fairness and pauses of the store.
//!
//! ```text
//! cargo bench --bench store               a million and ten million keys, and a flood: about a minute
//! cargo bench --bench store -- --quick    a tenth of the keys
//! cargo bench --bench store -- --help
//! ```
//!
//! Memory is what the process has more of than before (`VmRSS`), measured in a process of its own for each contender (`memory`): one
//! that has just given memory back would not show what the next one takes. In the flood (`flood`) new keys come as fast as one thread can
//! send them, ten times as many as there is room for, while a thread sweeps as the gateway does.
//!
//! A pause is how long one call took; time in which its thread was ready and had no core is not counted where the kernel tells
//! it (`pauses`). Fails when the blocked key was admitted.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program: the table is its output")]

#[path = "../common/mod.rs"]
mod common;
mod flood;
mod memory;
mod pauses;
mod process;

use anyhow::{Result, ensure};
use clap::Parser;

use crate::flood::{BUSY, Flood};
use crate::memory::Contender;

/// As in the process that this is about.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what counters take, beside governor, and what a flood of keys does to them.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench store --")]
struct Options {
    /// Numbers of keys whose memory is measured
    #[arg(long, value_delimiter = ',', default_value = "1000000,10000000", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    keys: Vec<u64>,
    /// Room for keys in the flood
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..=100_000_000))]
    room: u64,
    /// Floods, each of new keys into a new store
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// A tenth of all numbers of keys
    #[arg(long)]
    quick: bool,
    /// Fills one store, says what it took, and ends: `digest 1000000`
    #[arg(long, hide = true, num_args = 2)]
    fill: Vec<String>,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let mut options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` executes benchmarks too, without cargo bench's `--bench`.
        println!("a benchmark: run it with `cargo bench --bench store`");
        return Ok(());
    }
    if let [contender, keys] = options.fill.as_slice() {
        return memory::fill(contender, keys.parse()?);
    }
    if options.quick {
        options.room /= 10;
        options.keys.iter_mut().for_each(|keys| *keys /= 10);
    }
    println!("{}\n", common::machine());
    memory_table(&options)?;
    for round in 1..=options.rounds {
        flood_tables(&options, round)?;
    }
    Ok(())
}

fn memory_table(options: &Options) -> Result<()> {
    println!(
        "| keys | store | bytes per key kept | at the peak | by its own account | keys kept |\n|---:|---|---:|---:|---:|---:|"
    );
    for &keys in &options.keys {
        for contender in Contender::ALL {
            if contender.is_too_large(keys) {
                println!("| {keys} | {} | more than 6 GiB | – | – | – |", contender.title());
                continue;
            }
            println!("| {keys} | {} | {} |", contender.title(), memory::measure(contender, keys)?);
        }
    }
    println!("\nBy its own account: `Occupancy::bytes` ÷ `max_keys`.\n");
    Ok(())
}

fn flood_tables(options: &Options, round: u64) -> Result<()> {
    let Flood { entered, blocked, busy, resident, occupancy, pauses } = Flood::run(options.room, round)?;
    let mib = |bytes: u64| process::ratio(bytes, 1 << 20);
    println!(
        "Flood {round}: {entered} new keys into room for {}, of which {} admitted.\n",
        occupancy.max_keys, blocked.newcomers
    );
    println!("| | |\n|---|---|");
    println!("| blocked key | refused {} of {} times |", blocked.refused, blocked.asked);
    println!("| busy keys that kept their count exactly | {busy} of {BUSY} |");
    println!("| counters taken over, idle / in use | {} / {} |", occupancy.evicted_idle, occupancy.evicted_live);
    let [before, full, swept] = resident;
    let growth = full.saturating_sub(before);
    let room = options.room * 24;
    println!("| resident before, full, swept | {:.1}, {:.1}, {:.1} MiB |", mib(before), mib(full), mib(swept));
    println!(
        "| growth beside 24 bytes × {} | {:.1} ÷ {:.1} MiB = {:.2} |",
        options.room,
        mib(growth),
        mib(room),
        process::ratio(growth, room)
    );
    println!("\n| calls | < 1 µs | < 10 µs | < 100 µs | < 1 ms | ≥ 1 ms | longest |\n|---|---:|---:|---:|---:|---:|---:|");
    for (title, pauses) in &pauses {
        println!("| {title} | {pauses} |");
    }
    println!();
    ensure!(blocked.refused == blocked.asked, "the blocked key was admitted {} times", blocked.asked - blocked.refused);
    Ok(())
}
