//! A question for a slot that something later of the same gateway overtakes on its way to the store. The store then knows a larger sequence
//! than the question's; here it is written there, so that the order is not left to chance.

use super::{ANSWERED, keys, store};
use crate::harness::redis::text;
use crate::harness::{Client, Gateway, Latch, Origin, RedisServer, until};

const TWO: &str = "limits: [{ name: two, per: global, concurrency: 2 }]\n";

/// What a gateway has said of the slots.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    instance: String,
    count: u64,
    expiry: u64,
    sequence: u64,
}

/// The only hash of a store, with a field for each gateway.
fn said(redis: &RedisServer) -> Vec<Said> {
    let mut client = redis.client();
    let Some(key) = hash(redis) else { return Vec::new() };
    let fields = text(&client.ask(&["HGETALL", &key]));
    let lines: Vec<_> = fields.lines().collect();
    lines.chunks(2).map(|field| parse(field[0], field[1])).collect()
}

fn parse(instance: &str, value: &str) -> Said {
    let numbers: Vec<u64> = value.split(':').map(|number| number.parse().unwrap()).collect();
    Said { instance: instance.to_owned(), count: numbers[0], expiry: numbers[1], sequence: numbers[2] }
}

fn hash(redis: &RedisServer) -> Option<String> {
    let mut client = redis.client();
    keys(&mut client).into_iter().find(|key| text(&client.ask(&["TYPE", key])) == "hash")
}

fn say(redis: &RedisServer, Said { instance, count, expiry, sequence }: &Said) {
    let key = hash(redis).unwrap();
    redis.command(&["HSET", &key, instance, &format!("{count}:{expiry}:{sequence}")]);
}

/// How many all gateways have.
pub(super) fn held(redis: &RedisServer) -> u64 {
    said(redis).iter().map(|said| said.count).sum()
}

/// A gateway before an upstream that answers when the door opens.
struct Scene {
    redis: RedisServer,
    door: Latch,
    origin: Origin,
}

impl Scene {
    fn new() -> Self {
        let door = Latch::default();
        let opens = door.clone();
        let origin = Origin::new(move |call| {
            opens.wait();
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        });
        Self { redis: RedisServer::start(), door, origin }
    }

    fn gateway(&self) -> Gateway {
        let gateway = Gateway::before(&self.origin, &format!("{}{TWO}", store(&self.redis, "")));
        until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
        gateway
    }

    /// A request in flight, once the store counts `all`.
    fn holding(&self, gateway: &Gateway, all: u64) -> Client {
        let mut client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        until("its slot is counted", || held(&self.redis) == all);
        client
    }
}

#[test]
fn a_question_that_is_overtaken_is_asked_again_and_nothing_is_counted_twice() {
    let scene = Scene::new();
    let redis = &scene.redis;
    let (one, other) = (scene.gateway(), scene.gateway());
    let mut first = scene.holding(&one, 1);
    let mine = said(redis).remove(0);
    // What a renewal says between the count and its arrival: the second slot is in it already.
    say(redis, &Said { count: 2, sequence: mine.sequence + 2, ..mine });
    let mut second = one.client();
    second.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    until("it is said again", || said(redis)[0].sequence > mine.sequence + 2);
    assert_eq!((held(redis), other.get("/").status), (2, 429), "the limit holds");
    scene.door.open();
    assert_eq!((first.receive().status(), second.receive().status()), (200, 200), "there was room for both");
    until("nothing is left", || held(redis) == 0);
    assert_eq!(other.get("/").status, 200);
}

#[test]
fn what_overtook_a_question_without_regard_to_the_limit_gets_no_slot_by_it() {
    let scene = Scene::new();
    let redis = &scene.redis;
    let (one, other) = (scene.gateway(), scene.gateway());
    assert!(hash(redis).is_none());
    let _held = [scene.holding(&other, 1), scene.holding(&other, 2)];
    let others = said(redis).remove(0);
    // A renewal of the slot that is only being asked for: three of two are said for a moment.
    say(redis, &Said { instance: own_name(redis, &others.instance), count: 1, expiry: others.expiry, sequence: 2 });
    assert_eq!(one.get("/").status, 429, "asked again, and all are taken");
    until("it has given back what it never had", || held(redis) == 2);
    scene.door.open();
    until("there is a slot again", || one.get("/").status == 200);
    until("nothing is left", || held(redis) == 0);
}

/// The other gateway's name.
fn own_name(redis: &RedisServer, not: &str) -> String {
    let mut names = Vec::new();
    until("both gateways are listed", || {
        names = redis.command(&["ZRANGE", "tollgate:instances", "0", "-1"]).lines().map(str::to_owned).collect();
        names.len() == 2
    });
    names.into_iter().find(|name| name != not).unwrap()
}

#[test]
fn a_question_that_is_overtaken_every_time_is_refused_and_leaves_nothing() {
    let redis = RedisServer::start();
    let limits = "limits: [{ name: two, per: global, concurrency: 2 }]\n";
    let gateway = Gateway::start(&format!("{}{limits}{ANSWERED}", store(&redis, "")));
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    assert_eq!(gateway.get("/").status, 200);
    until("its slot is given back", || said(&redis).first().is_some_and(|said| said.count == 0));
    let mine = said(&redis).remove(0);
    let ahead = Said { sequence: mine.sequence + 1000, ..mine.clone() };
    say(&redis, &ahead);
    let refused = gateway.get("/");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(said(&redis), [ahead], "nothing was changed by what came late");
    // Four tries and what gave the slot back: no more was said.
    say(&redis, &Said { sequence: mine.sequence + 5, ..mine });
    assert_eq!(gateway.get("/").status, 200, "what is said now is the latest again");
    until("nothing is left", || held(&redis) == 0);
}
