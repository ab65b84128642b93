//! The pictures of the book. `make pictures` draws them; a test compares.

mod failover;
mod life;
mod queue;
mod svg;

/// Each picture: its file in `docs/pictures/`, and its text.
pub fn all() -> [(&'static str, String); 3] {
    [
        ("life.svg", life::draw().render()),
        ("queue.svg", queue::draw().render()),
        ("failover.svg", failover::draw().render()),
    ]
}
