//! The rules, on the engine with a host in memory.

fn main() {
    dlock_rules::main::<dlock_rules::InMemory>();
}
