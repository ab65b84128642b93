/// How a lock is held: [`Exclusive`] or [`Shared`].
pub trait Mode: sealed::Sealed + Clone + Send + Sync + 'static {}

/// By one holder, which has a fence.
#[derive(Clone, Copy, Debug)]
pub enum Exclusive {}

/// By any number of holders, without fences.
#[derive(Clone, Copy, Debug)]
pub enum Shared {}

impl Mode for Exclusive {}
impl Mode for Shared {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Exclusive {}
    impl Sealed for super::Shared {}
}
