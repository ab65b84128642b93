//! The one way to reach a function of the module API.

/// A function that every server which loads us has: `load` refuses those older than Redis 7.0.
pub fn required<F>(function: Option<F>) -> F {
    // Not a panic: there is nothing to unwind to, and no way to go on.
    function.unwrap_or_else(|| std::process::abort())
}
