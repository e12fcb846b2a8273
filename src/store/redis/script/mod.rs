//! What runs in the store: the scripts, their arguments and their answers. Knows no connections.
