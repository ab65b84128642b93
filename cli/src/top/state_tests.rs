use std::collections::BTreeMap;

use redis::{FromRedisValue, Value};

use super::*;

/// A lock with one holder for each fence, that began to hold so long ago, and waiters that wait for so long.
pub fn lock(name: &str, fences: &[u64], held_ms: i64, waited_ms: &[i64]) -> Named {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let map = |fields: Vec<(&str, Value)>| {
        Value::Map(
            fields
                .into_iter()
                .map(|(name, value)| (text(name), value))
                .collect(),
        )
    };
    let holder = |fence: &u64| {
        map(vec![
            ("owner", text(&format!("owner-{fence}"))),
            ("fence", Value::Int(*fence as i64)),
            ("holds", Value::Int(1)),
            ("lease-ms", Value::Int(30_000)),
            ("held-ms", Value::Int(held_ms)),
        ])
    };
    let waiter = |ms: &i64| {
        map(vec![
            ("owner", text("waiter")),
            ("limit", Value::Int(1)),
            ("waited-ms", Value::Int(*ms)),
            ("timeout-ms", Value::Int(-1)),
        ])
    };
    let info = map(vec![
        ("limit", Value::Int(1)),
        ("holders", Value::Array(fences.iter().map(holder).collect())),
        ("waiting", Value::Int(waited_ms.len() as i64)),
        ("waiters", Value::Array(waited_ms.iter().map(waiter).collect())),
    ]);
    Named {
        name: name.as_bytes().to_vec(),
        info: Some(redis_dlock_client::LockInfo::from_redis_value(info).expect("an answer of DLOCK.INFO")),
    }
}

pub fn sample(locks: Vec<Named>, counted: &[(&str, u64)]) -> Sample {
    let counted: BTreeMap<String, u64> = counted
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    Sample {
        servers: 1,
        counted,
        locks,
        elapsed: Duration::from_secs(2),
    }
}

/// Waiting: b. Held the longest: c. Waiting the longest: a.
pub fn three() -> Vec<Named> {
    vec![
        lock("a", &[1], 1_000, &[9_000]),
        lock("b", &[2], 2_000, &[500, 400]),
        lock("c", &[3], 3_000, &[]),
    ]
}

fn names(state: &State) -> String {
    state.rows().iter().map(|row| shown(&row.lock.name)).collect()
}

pub fn press(state: &mut State, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            key => KeyCode::Char(key),
        };
        state.press(KeyEvent::from(code));
    }
}

pub fn state(locks: Vec<Named>) -> State {
    let mut state = State::default();
    state.update(sample(locks, &[]));
    state
}

#[test]
fn the_list_is_sorted_by_what_is_asked_for() {
    let mut state = state(three());
    state.update(sample(
        vec![
            lock("a", &[1], 1_000, &[9_000]),
            lock("b", &[2], 2_000, &[500, 400]),
            lock("c", &[4], 3_000, &[]),
        ],
        &[],
    ));
    let mut orders = Vec::new();
    for _ in 0..5 {
        orders.push((state.order, names(&state)));
        press(&mut state, "s");
    }
    let expected = [
        (Order::Waiting, "bac"),
        (Order::Grants, "cab"),
        (Order::Held, "cba"),
        (Order::Waited, "abc"),
        (Order::Name, "abc"),
    ];
    assert_eq!(orders, expected.map(|(order, names)| (order, names.to_owned())));
    assert_eq!(state.order, Order::Waiting);
}

#[test]
fn a_filter_is_typed_kept_and_dropped() {
    let mut state = state(vec![lock("Jobs", &[1], 0, &[]), lock("orders", &[2], 0, &[])]);
    press(&mut state, "/jobx\x08\n");
    assert_eq!((names(&state).as_str(), &state.mode), ("Jobs", &Mode::List));
    press(&mut state, "q");
    assert!(state.is_over());
    press(&mut state, "\x1b");
    assert_eq!(names(&state), "Jobsorders");
    press(&mut state, "/q\x1b");
    assert_eq!(names(&state), "Jobsorders");
}

#[test]
fn the_cursor_stays_on_its_lock() {
    let mut state = state(three());
    press(&mut state, "↓↓↓↓");
    assert_eq!(state.chosen_name(), Some(&b"c"[..]));
    press(&mut state, "↑");
    assert_eq!(state.chosen_name(), Some(&b"a"[..]));
    press(&mut state, "s");
    assert_eq!(state.chosen_name(), Some(&b"a"[..]));
    // It has gone: the first one is chosen.
    state.update(sample(vec![lock("c", &[3], 0, &[])], &[]));
    assert_eq!(state.chosen_name(), Some(&b"c"[..]));
    state.update(sample(vec![], &[]));
    assert_eq!(state.chosen_name(), None);
    press(&mut state, "↓↑\n");
    assert_eq!(state.mode, Mode::List);
}

#[test]
fn a_lock_that_is_looked_into_may_go_and_come() {
    let mut state = state(three());
    press(&mut state, "\n");
    assert_eq!(state.mode, Mode::Lock);
    state.update(sample(vec![], &[]));
    assert!(state.chosen().is_none());
    state.update(sample(three(), &[]));
    assert_eq!(state.chosen().map(|lock| lock.waiting()), Some(2));
    press(&mut state, "\x1b");
    assert_eq!(state.mode, Mode::List);
}

#[test]
fn grants_are_counted_by_new_fences() {
    let mut state = state(vec![lock("a", &[1, 2], 0, &[])]);
    for fences in [&[1, 2][..], &[2, 3], &[], &[4, 5]] {
        state.update(sample(vec![lock("a", fences, 0, &[])], &[]));
    }
    assert_eq!(state.rows()[0].grants, 3);
}

#[test]
fn a_lock_that_is_free_for_a_moment_keeps_its_count() {
    let mut state = state(vec![lock("a", &[1], 0, &[])]);
    let look = |state: &mut State, locks: Vec<Named>| state.update(sample(locks, &[]));
    look(&mut state, vec![lock("a", &[2], 0, &[])]);
    look(&mut state, vec![]);
    look(&mut state, vec![lock("a", &[3], 0, &[])]);
    assert_eq!(state.rows()[0].grants, 2);
    for _ in 0..HISTORY {
        look(&mut state, vec![]);
    }
    look(&mut state, vec![lock("a", &[4], 0, &[])]);
    assert_eq!(state.rows()[0].grants, 0, "it was forgotten");
}

#[test]
fn rates_are_per_second_and_survive_a_restart_of_the_server() {
    let mut state = State::default();
    for acquired in [100, 110, 110, 4] {
        state.update(sample(vec![], &[("acquired", acquired), ("waiters", acquired)]));
    }
    assert_eq!(state.acquired.per_second.last(10), [5, 0, 2]);
    assert_eq!(state.waiting.last(2), [110, 4]);
    for n in 0..1000 {
        state.update(sample(vec![], &[("acquired", n)]));
    }
    assert_eq!(state.acquired.per_second.last(1000).len(), HISTORY);
}

#[test]
fn a_pause_keeps_what_is_shown() {
    let mut state = state(three());
    press(&mut state, " ");
    state.update(sample(vec![], &[]));
    assert_eq!(names(&state), "bac");
    press(&mut state, " ");
    state.update(sample(vec![], &[]));
    assert_eq!(names(&state), "");
}

#[test]
fn trouble_is_shown_until_it_is_over() {
    let mut state = state(three());
    state.fail("no server".to_owned());
    assert_eq!(state.trouble.as_deref(), Some("no server"));
    assert_eq!(names(&state), "bac");
    state.update(sample(vec![], &[]));
    assert_eq!(state.trouble, None);
}
