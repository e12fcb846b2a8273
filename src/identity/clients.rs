//! Known clients, looked up by key and by user. As large as the configuration says: nothing here looks at all of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{KeyDigest, TierId};

/// A client's place in [`Clients`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId(pub u32);

/// A known client.
#[derive(Debug)]
pub struct Client {
    /// Its name.
    pub id: Box<str>,
    /// Its tier.
    pub tier: TierId,
    /// Its tenant.
    pub tenant: Option<Box<str>>,
    /// Whether nothing is counted for it.
    pub exempt: bool,
}

/// Known clients, by key and by user.
#[derive(Debug, Default)]
pub struct Clients {
    list: Vec<Client>,
    by_key: HashMap<KeyDigest, Known>,
    by_user: HashMap<Box<str>, ClientId>,
    /// Unix seconds, as somebody else says now and then: a request reads no clock for it.
    now: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    client: ClientId,
    expires: Expiry,
}

/// From when on a key is not valid any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(u64);

/// Whose a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This client's.
    Client(ClientId),
    /// Nobody's any more.
    Expired,
    /// Nobody's.
    Nobody,
}

impl Expiry {
    /// The key is valid for ever.
    pub const NEVER: Self = Self(u64::MAX);

    /// In Unix seconds.
    #[must_use]
    pub fn at(unix_seconds: u64) -> Self {
        Self(unix_seconds)
    }
}

impl Clients {
    /// Adds a client.
    pub fn add(&mut self, client: Client) -> ClientId {
        let id = ClientId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.list.push(client);
        id
    }

    /// Gives a client a key.
    ///
    /// # Errors
    /// Who has it already, and keeps it.
    pub fn add_key(&mut self, key: KeyDigest, client: ClientId, expires: Expiry) -> Result<(), ClientId> {
        match self.by_key.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(Known { client, expires });
                Ok(())
            }
            Entry::Occupied(taken) => Err(taken.get().client),
        }
    }

    /// Gives a client a user.
    ///
    /// # Errors
    /// Who has it already, and keeps it.
    pub fn add_user(&mut self, user: &str, client: ClientId) -> Result<(), ClientId> {
        match self.by_user.get(user) {
            Some(owner) => Err(*owner),
            None => {
                self.by_user.insert(user.into(), client);
                Ok(())
            }
        }
    }

    /// The client of this id.
    #[must_use]
    pub fn get(&self, id: ClientId) -> Option<&Client> {
        self.list.get(usize::try_from(id.0).ok()?)
    }

    /// The client of this user.
    #[must_use]
    pub fn of_user(&self, user: &str) -> Option<ClientId> {
        self.by_user.get(user).copied()
    }

    /// Whose a key is, at the time that was last told.
    #[must_use]
    pub fn owner(&self, key: &KeyDigest) -> Owner {
        match self.by_key.get(key) {
            Some(known) if known.expires.0 > self.now.load(Ordering::Relaxed) => Owner::Client(known.client),
            Some(_) => Owner::Expired,
            None => Owner::Nobody,
        }
    }

    /// Tells what time it is. Before that is told no key has expired.
    pub fn tell(&self, unix_seconds: u64) {
        self.now.store(unix_seconds, Ordering::Relaxed);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: &str) -> Client {
        Client { id: id.into(), tier: TierId(0), tenant: None, exempt: false }
    }

    #[test]
    fn a_key_is_valid_until_the_second_it_expires() {
        let mut clients = Clients::default();
        let id = clients.add(client("a"));
        let [forever, soon, nobodys] = ["forever", "soon", "nobodys"].map(|key| KeyDigest::of(key.as_bytes()));
        assert_eq!(clients.add_key(forever, id, Expiry::NEVER), Ok(()));
        assert_eq!(clients.add_key(soon, id, Expiry::at(100)), Ok(()));
        for (now, expected) in [(0, Owner::Client(id)), (99, Owner::Client(id)), (100, Owner::Expired), (101, Owner::Expired)] {
            clients.tell(now);
            assert_eq!(clients.owner(&soon), expected, "at {now}");
            assert_eq!(clients.owner(&forever), Owner::Client(id), "at {now}");
            assert_eq!(clients.owner(&nobodys), Owner::Nobody, "at {now}");
        }
    }

    #[test]
    fn a_key_and_a_user_belong_to_whom_they_were_given_first() {
        let mut clients = Clients::default();
        let (a, b) = (clients.add(client("a")), clients.add(client("b")));
        let key = KeyDigest::of(b"k");
        assert_eq!([clients.add_key(key, a, Expiry::NEVER), clients.add_key(key, b, Expiry::NEVER)], [Ok(()), Err(a)]);
        assert_eq!([clients.add_user("u", b), clients.add_user("u", a)], [Ok(()), Err(b)]);
        assert_eq!((clients.owner(&key), clients.of_user("u")), (Owner::Client(a), Some(b)));
    }
}
