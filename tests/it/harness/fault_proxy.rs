//! A TCP proxy that stands in for a bad network: slow, silent, forgetful, gone.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Stands before one port. Ends with its value.
pub(crate) struct FaultProxy {
    port: u16,
    state: Arc<State>,
}

/// What becomes of bytes and connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    /// All goes through.
    Sound,
    /// All goes through, this much later in each direction.
    Slow(Duration),
    /// Nothing goes through; connections stay, and new ones are taken.
    Frozen,
    /// The server hears everything; its answers wait.
    Unanswered,
    /// The first connection goes silent; the others are sound.
    OneIsSilent,
    /// The server hears everything; the next of its answers is lost with its connection, and then all is sound.
    ForgetsAnAnswer,
    /// Connections are reset, and new ones too.
    Gone,
}

struct State {
    network: Mutex<Network>,
    changed: Condvar,
    connections: Mutex<Vec<TcpStream>>,
    ended: Mutex<bool>,
}

impl FaultProxy {
    pub(crate) fn before(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            network: Mutex::new(Network::Sound),
            changed: Condvar::new(),
            connections: Mutex::default(),
            ended: Mutex::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                if *shared.ended.lock().unwrap() {
                    return;
                }
                shared.take(client, target, number);
            }
        });
        Self { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, network: Network) {
        *self.state.network.lock().unwrap() = network;
        self.state.changed.notify_all();
        if network == Network::Gone {
            self.state.cut();
        }
    }

    /// Whether an answer that was to be forgotten has been.
    pub(crate) fn is(&self, network: Network) -> bool {
        *self.state.network.lock().unwrap() == network
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        *self.state.ended.lock().unwrap() = true;
        self.set(Network::Gone);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl State {
    fn take(self: &Arc<Self>, client: TcpStream, target: u16, number: usize) {
        if *self.network.lock().unwrap() == Network::Gone {
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { return };
        let ends = [&client, &server].map(|end| end.try_clone().unwrap());
        ends.iter().for_each(|end| end.set_nodelay(true).unwrap());
        self.connections.lock().unwrap().extend(ends);
        let (client_back, server_back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let (there, back) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || there.pump(client, server, (Way::ToServer, number)));
        thread::spawn(move || back.pump(server_back, client_back, (Way::ToClient, number)));
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, way: (Way, usize)) {
        let mut buffer = [0; 16 << 10];
        while let Ok(n) = from.read(&mut buffer) {
            if n == 0 || !self.lets_through(way) || to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Waits as long as the network makes bytes wait; false if it loses them.
    fn lets_through(&self, (way, number): (Way, usize)) -> bool {
        let mut network = self.network.lock().unwrap();
        loop {
            match *network {
                Network::Sound => return true,
                Network::Gone => return false,
                Network::Slow(by) => {
                    drop(network);
                    thread::sleep(by);
                    return true;
                }
                Network::OneIsSilent if number > 0 => return true,
                Network::Unanswered | Network::ForgetsAnAnswer if way == Way::ToServer => return true,
                Network::Frozen | Network::Unanswered | Network::OneIsSilent => network = self.wait(network),
                Network::ForgetsAnAnswer => {
                    *network = Network::Sound;
                    return false;
                }
            }
        }
    }

    fn wait<'s>(&self, network: MutexGuard<'s, Network>) -> MutexGuard<'s, Network> {
        self.changed.wait(network).unwrap()
    }

    fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}
