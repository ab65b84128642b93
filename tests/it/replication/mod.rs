//! What replicas get and do: promotions, internal commands. The stream is in `tests/rules`.

mod internal_commands;
mod promotion;
mod replicas;
mod replication_skipped_without_consumers;
mod sync_replicas;
