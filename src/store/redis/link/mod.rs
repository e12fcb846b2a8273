//! The way to the servers: connections, deadlines, what happens when one is slow or gone. Knows no limits.
