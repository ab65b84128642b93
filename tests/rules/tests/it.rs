//! The rules, over the wire.

fn main() {
    dlock_rules::main::<dlock_rules::OverTheWire>();
}
