//! Requests that wait through an inbox keep their place, are answered, and do not keep a lock from others.

use std::collections::{BTreeMap, HashMap};

use super::{Rule, Violation, by_key};
use crate::history::{Call, History, Micros, Op, Reply, Request, ServerTerm};

/// Requests that were granted before one that definitely stood before them in the queue.
pub fn overtaken_waiters(history: &History) -> Vec<Violation> {
    let first_sent = first_sent(history);
    let grants = grants_by_key(history, &first_sent);
    let places = places(history);
    places
        .iter()
        .filter_map(|place| overtaken(place, &grants))
        .collect()
}

fn overtaken(place: &Place<'_>, grants: &BTreeMap<&str, Vec<Grant<'_>>>) -> Option<Violation> {
    let grants = grants.get(place.key)?;
    let later = grants.partition_point(|grant| grant.first_sent <= place.from);
    let mut rivals = grants[later..]
        .iter()
        .take_while(|grant| grant.first_sent < place.until);
    let rival = rivals.find(|rival| rival.op.server == place.server && rival.before < place.until)?;
    Some(Violation {
        rule: Rule::Fifo,
        what: format!(
            "{} was queued before {} was sent, and still waited {} us after that was granted",
            place.owner,
            rival.op.owner,
            place.until - rival.before
        ),
        ops: vec![place.op, rival.n],
    })
}

/// A request that was granted.
struct Grant<'a> {
    n: usize,
    op: &'a Op,
    /// Before it arrived.
    first_sent: Micros,
    /// After it was granted.
    before: Micros,
}

/// In the order in which they were first sent.
fn grants_by_key<'a>(
    history: &'a History,
    first_sent: &HashMap<&str, Micros>,
) -> BTreeMap<&'a str, Vec<Grant<'a>>> {
    let mut keys: BTreeMap<&str, Vec<Grant<'_>>> = BTreeMap::new();
    for (n, op) in history.ops.iter().enumerate() {
        if let (Reply::Granted { holds: 1, .. }, Some(first_sent)) =
            (&op.reply, first_sent.get(op.owner.as_str()))
        {
            let (first_sent, before) = (*first_sent, op.granted_before());
            let grant = Grant {
                n,
                op,
                first_sent,
                before,
            };
            keys.entry(&op.key).or_default().push(grant);
        }
    }
    for grants in keys.values_mut() {
        grants.sort_by_key(|grant| grant.first_sent);
    }
    keys
}

/// When the requests of owners that have one each were sent for the first time.
fn first_sent(history: &History) -> HashMap<&str, Micros> {
    let mut first: HashMap<&str, Micros> = HashMap::new();
    let acquires = history.ops.iter();
    for op in acquires.filter(|op| matches!(op.request, Request::Acquire(_))) {
        let sent = first.entry(&op.owner).or_insert(op.sent);
        *sent = op.sent.min(*sent);
    }
    first
}

/// Locks that nobody got for too long while somebody definitely waited.
pub fn stalled_locks(history: &History) -> Vec<Violation> {
    let Some(longest) = history.longest_stall else {
        return Vec::new();
    };
    let mut grants: BTreeMap<&str, Vec<Micros>> = BTreeMap::new();
    for (key, ops) in by_key(history) {
        let times = ops
            .iter()
            .filter(|(_, op)| matches!(op.reply, Reply::Granted { .. }));
        let mut times: Vec<Micros> = times.map(|(_, op)| op.replied).collect();
        times.sort_unstable();
        grants.insert(key, times);
    }
    let stalled = places(history).into_iter().filter_map(|place| {
        let times = grants.get(place.key)?;
        let meanwhile = times.iter().filter(|at| (place.from..place.until).contains(at));
        let mut before = place.from;
        for at in meanwhile.chain([&place.until]) {
            if at - before > longest {
                return Some((place.key, before, at - before, place.op, place.owner));
            }
            before = *at;
        }
        None
    });
    let mut stalled: Vec<_> = stalled.collect();
    stalled.sort_unstable();
    // All that waited there tell the same.
    stalled.dedup_by_key(|(key, before, ..)| (*key, *before));
    let violations = stalled.into_iter().map(|(key, _, us, op, owner)| Violation {
        rule: Rule::Stalls,
        what: format!("{owner} waited for {key}, and nobody got it for {us} us"),
        ops: vec![op],
    });
    violations.collect()
}

/// Requests that were never answered.
pub fn forgotten_requests(history: &History) -> Vec<Violation> {
    let forgotten = history.forgotten.iter();
    let violations = forgotten.map(|request| Violation {
        rule: Rule::Forgotten,
        what: format!("{} was never answered about {}", request.owner, request.key),
        ops: history
            .ops
            .iter()
            .enumerate()
            .filter(|(_, op)| op.owner == request.owner)
            .map(|(n, _)| n)
            .collect(),
    });
    violations.collect()
}

/// A time span in which a request definitely stood in a queue, without losing its place.
struct Place<'a> {
    /// The request that got the place.
    op: usize,
    key: &'a str,
    owner: &'a str,
    server: ServerTerm,
    from: Micros,
    until: Micros,
}

/// The places of all requests that were queued for an inbox.
///
/// A call of GRANTS that is answered, and made no inbox, shows that the inbox had existed before; and when it was sent,
/// the request had not been answered, unless this or an earlier reply of GRANTS tells so.
fn places(history: &History) -> Vec<Place<'_>> {
    let calls = calls_by_reader(history);
    let ends = ends(history);
    let ops = history.ops.iter().enumerate();
    let queued = ops.filter(|(_, op)| matches!(op.reply, Reply::Queued(_)));
    let places = queued.filter_map(|(n, op)| {
        let process = op.owner.split('.').next()?;
        let until = last_seen(op, calls.get(&(process, op.server))?)?;
        let end = ends.get(op.owner.as_str()).copied().unwrap_or(Micros::MAX);
        let place = Place {
            op: n,
            key: &op.key,
            owner: &op.owner,
            server: op.server,
            from: op.replied,
            until: until.min(end),
        };
        (place.from < place.until).then_some(place)
    });
    places.collect()
}

/// When the request was waiting for the last time, after the reply that told it was queued.
fn last_seen(op: &Op, calls: &[&Call]) -> Option<Micros> {
    let mut seen = None;
    for call in calls.iter().filter(|call| call.replied > op.sent) {
        // It may have been queued for the inbox before this one. Or it lost its place here.
        if call.made || call.answered.contains(&op.owner) {
            break;
        }
        if call.sent > op.replied {
            seen = Some(call.sent);
        }
    }
    seen
}

/// The replies of GRANTS that one process got from one server, in order.
fn calls_by_reader(history: &History) -> HashMap<(&str, ServerTerm), Vec<&Call>> {
    let mut readers: HashMap<_, Vec<&Call>> = HashMap::new();
    for call in &history.calls {
        let reader = (call.process.as_str(), call.server);
        readers.entry(reader).or_default().push(call);
    }
    for calls in readers.values_mut() {
        calls.sort_by_key(|call| call.replied);
    }
    readers
}

/// When owners may have left a queue: they released or withdrew, or had the lock, though nobody may have been told yet.
fn ends(history: &History) -> HashMap<&str, Micros> {
    let mut ends: HashMap<&str, Micros> = HashMap::new();
    for op in &history.ops {
        let end = match (&op.request, &op.reply) {
            (Request::Release { .. }, _) => op.sent,
            (_, Reply::Granted { .. }) => op.granted_before(),
            _ => continue,
        };
        let first = ends.entry(&op.owner).or_insert(end);
        *first = end.min(*first);
    }
    ends
}
