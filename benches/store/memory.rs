//! Bytes per key: fills a store in a process of its own and asks the kernel what that took.

use std::num::NonZeroU32;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use governor::clock::FakeRelativeClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota as GovernorQuota, RateLimiter};
use tollgate::limit::{Algorithm, Charge, Quota, Quotas, SpaceId};
use tollgate::store::{Budget, MemoryStore};

use crate::common::{ClientKey, Digest, key};
use crate::process::{self, ratio};

/// Who keeps the counters.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Contender {
    Tollgate,
    Digests,
    Strings,
}

/// What that left behind.
struct Filled {
    kept: usize,
    own_bytes: Option<f64>,
    /// What must live until memory has been looked at.
    store: Box<dyn std::any::Any>,
}

impl Contender {
    pub(crate) const ALL: [Self; 3] = [Self::Tollgate, Self::Digests, Self::Strings];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Tollgate => "tollgate",
            Self::Digests => "governor, digest key",
            Self::Strings => "governor, String key",
        }
    }

    /// Whether so many keys would not fit 6 GiB, the doubled table while it grows included.
    pub(crate) fn is_too_large(self, keys: u64) -> bool {
        let bytes_per_key = match self {
            Self::Tollgate => 30,
            Self::Digests => 120,
            Self::Strings => 250,
        };
        keys.saturating_mul(bytes_per_key) > 6 << 30
    }
}

/// Table cells: bytes per key, at the peak, by its own account, and how many keys were kept.
pub(crate) fn measure(contender: Contender, keys: u64) -> Result<String> {
    let program = std::env::current_exe().context("which program is this")?;
    let arguments = ["--bench", "--fill", contender.title(), &keys.to_string()];
    let child = Command::new(program).args(arguments).stderr(Stdio::inherit()).output()?;
    ensure!(child.status.success(), "{}, {keys} keys: {}", contender.title(), child.status);
    Ok(String::from_utf8(child.stdout)?.trim().to_owned())
}

/// The child's part of [`measure`].
pub(crate) fn fill(contender: &str, keys: u64) -> Result<()> {
    let Some(contender) = Contender::ALL.into_iter().find(|known| known.title() == contender) else { bail!("no {contender}") };
    let before = process::resident()?;
    let filled = match contender {
        Contender::Tollgate => fill_tollgate(keys)?,
        Contender::Digests => fill_governor::<Digest>(keys),
        Contender::Strings => fill_governor::<String>(keys),
    };
    let (after, peak) = (process::settled()?, process::peak()?);
    let kept = u64::try_from(filled.kept)?;
    let per_key = |bytes: u64| ratio(bytes.saturating_sub(before), kept);
    let own = filled.own_bytes.map_or("–".to_owned(), |bytes| format!("{bytes:.1}"));
    println!("{:.1} | {:.1} | {own} | {:.2} %", per_key(after), per_key(peak), 100.0 * ratio(kept, keys));
    drop(filled.store);
    Ok(())
}

/// Room for exactly as many keys as come, all in use.
fn fill_tollgate(keys: u64) -> Result<Filled> {
    let quotas = Quotas::default();
    let quota = quotas.intern(Quota::new(100, HOUR, None, Algorithm::Gcra)?).context("no id")?;
    let store = MemoryStore::new(quotas);
    store.arrange(&[Budget { space: SpaceId(0), max_keys: usize::try_from(keys)? }]);
    for client in 0..keys {
        let charge = Charge {
            key: key(0, client),
            space: SpaceId(0),
            quota: &quota,
            cost: 1,
            limit: 0,
            queue: 0,
            warmup: None,
            sharing: None,
        };
        let _ = store.charge(&[charge], 1);
    }
    let occupancy = *store.occupancy().first().context("no space")?;
    let own_bytes = Some(ratio(u64::try_from(occupancy.bytes)?, u64::try_from(occupancy.max_keys)?));
    Ok(Filled { kept: occupancy.keys, own_bytes, store: Box::new(store) })
}

fn fill_governor<K: ClientKey>(keys: u64) -> Filled {
    let quota = GovernorQuota::per_hour(NonZeroU32::new(100).unwrap_or(NonZeroU32::MIN));
    let clock = FakeRelativeClock::default();
    let limiter = RateLimiter::<K, DashMapStateStore<K, K::Hashing>, _, _>::dashmap_with_clock_and_hasher(
        quota,
        clock,
        K::Hashing::default(),
    );
    let mut key = K::default();
    for client in 0..keys {
        key.become_key(0, client);
        let _ = limiter.check_key(&key);
    }
    Filled { kept: limiter.len(), own_bytes: None, store: Box::new(limiter) }
}

const HOUR: Duration = Duration::from_secs(3600);
