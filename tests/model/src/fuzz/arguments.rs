//! Any arguments of any command, one per line.

use super::holders::MAX_OWNER_BYTES;
use dlock_core::{
    Acquire, Error, Extend, GrantRef, Grants, Guard, Holds, Limit, MAX_FENCE, Release, Timeout, number,
};

/// The default of `dlock.max-lease-ms`, and its minimum.
const MAX_LEASES_MS: [u64; 2] = [86_400_000, 1];
const MAX_REQUEST_ID_BYTES: usize = 64;
const MAX_INBOX_BYTES: usize = 64;
const MAX_TIMEOUT_MS: u64 = 1 << 52;

/// Every parser rejects the arguments with an error of one line, or returns a request within its ranges. The canonical
/// form of that request parses to the same request.
pub fn arguments(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let args = || lines.iter().copied();
    for max_lease_ms in MAX_LEASES_MS {
        check(Acquire::parse(args(), max_lease_ms), |request| {
            assert_acquire(request, max_lease_ms);
            let written = write_acquire(request);
            assert_eq!(Acquire::parse(slices(&written), max_lease_ms), Ok(*request));
        });
        check(Extend::parse(args(), max_lease_ms), |request| {
            assert_named(request.owner, MAX_OWNER_BYTES);
            assert!((1..=max_lease_ms).contains(&request.lease_ms));
            match request.grant {
                GrantRef::Current => {}
                GrantRef::Fence(fence) => assert_fence(Some(fence)),
                GrantRef::RequestId(id) => assert_named(id, MAX_REQUEST_ID_BYTES),
            }
            assert_fence(request.min_fence);
            let written = write_extend(request);
            assert_eq!(Extend::parse(slices(&written), max_lease_ms), Ok(*request));
        });
    }
    check(Release::parse(args()), |request| {
        assert_named(request.owner, MAX_OWNER_BYTES);
        assert_fence(request.fence);
        if let Holds::ById(id) = request.holds {
            assert_named(id, MAX_REQUEST_ID_BYTES);
        }
        assert_eq!(Release::parse(slices(&write_release(request))), Ok(*request));
    });
    check(Guard::parse(args()), |request| {
        assert_named(request.owner, MAX_OWNER_BYTES);
        assert_fence(Some(request.fence));
        let written = [request.owner.to_vec(), decimal(request.fence)];
        assert_eq!(Guard::parse(slices(&written)), Ok(*request));
    });
    if let Some((inbox, args)) = lines.split_first() {
        check(Grants::parse(inbox, args.iter().copied()), |request| {
            assert_named(request.inbox, MAX_INBOX_BYTES);
            assert!(request.cursor <= MAX_FENCE);
            assert!(request.block_ms.is_none_or(|ms| (1..=60_000).contains(&ms)));
            assert!(
                request
                    .ttl_ms
                    .is_none_or(|ms| ms == 0 || (100..=60_000).contains(&ms))
            );
            let written = write_grants(request);
            assert_eq!(Grants::parse(request.inbox, slices(&written)), Ok(*request));
        });
    }
    // The numbers of DLOCK.SYNC.
    for text in args() {
        check(number("fence", text, 0, MAX_FENCE), |n| {
            assert_eq!(n.to_string().as_bytes(), text);
        });
    }
}

fn check<T>(parsed: Result<T, Error>, check_request: impl FnOnce(&T)) {
    match parsed {
        Ok(request) => check_request(&request),
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("ERR ") && !text.contains(['\r', '\n']), "{text}");
        }
    }
}

fn assert_named(name: &[u8], max: usize) {
    assert!((1..=max).contains(&name.len()), "{} bytes", name.len());
}

fn assert_fence(fence: Option<u64>) {
    let is_expected = fence.is_none_or(|fence| (1..=MAX_FENCE).contains(&fence));
    assert!(is_expected, "{fence:?}");
}

fn assert_acquire(request: &Acquire<'_>, max_lease_ms: u64) {
    assert_named(request.owner, MAX_OWNER_BYTES);
    assert!((1..=max_lease_ms).contains(&request.lease_ms));
    assert!(request.limit.get().is_none_or(|n| (1..=Limit::MAX).contains(&n)));
    if let Some(wait) = request.wait {
        if let Timeout::Ms(ms) = wait.timeout {
            assert!((1..=MAX_TIMEOUT_MS).contains(&ms));
        }
        if let Some(inbox) = wait.inbox {
            assert_named(inbox, MAX_INBOX_BYTES);
            assert!(request.request_id.is_some());
        }
    }
    if let Some(id) = request.request_id {
        assert_named(id, MAX_REQUEST_ID_BYTES);
    }
    assert_fence(request.min_fence);
}

fn write_acquire(request: &Acquire<'_>) -> Vec<Vec<u8>> {
    let mut args = vec![request.owner.to_vec(), decimal(request.lease_ms)];
    match request.limit.get() {
        None => args.push(b"SHARED".to_vec()),
        Some(n) => args.extend([b"LIMIT".to_vec(), decimal(u64::from(n))]),
    }
    if let Some(wait) = request.wait {
        match wait.inbox {
            Some(inbox) => args.extend([b"QUEUE".to_vec(), inbox.to_vec()]),
            None => args.push(b"BLOCK".to_vec()),
        }
        args.push(decimal(match wait.timeout {
            Timeout::Infinite => 0,
            Timeout::Ms(ms) => ms,
        }));
    }
    if let Some(id) = request.request_id {
        args.extend([b"REQID".to_vec(), id.to_vec()]);
    }
    args.extend(write_fence("MINFENCE", request.min_fence));
    args
}

fn write_release(request: &Release<'_>) -> Vec<Vec<u8>> {
    let mut args = vec![request.owner.to_vec()];
    match request.holds {
        Holds::One => {}
        Holds::All => args.push(b"ALL".to_vec()),
        Holds::ById(id) => args.extend([b"REQID".to_vec(), id.to_vec()]),
    }
    args.extend(write_fence("FENCE", request.fence));
    args
}

fn write_extend(request: &Extend<'_>) -> Vec<Vec<u8>> {
    let mut args = vec![request.owner.to_vec(), decimal(request.lease_ms)];
    match request.grant {
        GrantRef::Current => {}
        GrantRef::Fence(fence) => args.extend(write_fence("FENCE", Some(fence))),
        GrantRef::RequestId(id) => args.extend([b"REQID".to_vec(), id.to_vec()]),
    }
    args.extend(write_fence("MINFENCE", request.min_fence));
    args
}

fn write_grants(request: &Grants<'_>) -> Vec<Vec<u8>> {
    let option = |name: &str, ms: Option<u64>| ms.map(|ms| [name.into(), decimal(ms)]);
    let options = [option("BLOCK", request.block_ms), option("TTL", request.ttl_ms)];
    let cursor = [decimal(request.cursor)];
    cursor
        .into_iter()
        .chain(options.into_iter().flatten().flatten())
        .collect()
}

fn write_fence(option: &str, fence: Option<u64>) -> Vec<Vec<u8>> {
    fence.map_or_else(Vec::new, |fence| vec![option.into(), decimal(fence)])
}

fn decimal(n: u64) -> Vec<u8> {
    n.to_string().into_bytes()
}

fn slices(args: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    args.iter().map(Vec::as_slice)
}
