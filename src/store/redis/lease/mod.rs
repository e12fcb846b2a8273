//! Blocks of cells that were taken from the store and are spent here. Knows no connections: time and answers are arguments.
