use std::collections::BTreeMap;

use redis::{FromRedisValue, Value};

use super::*;

/// A lock with a holder per fencing token, all held for `held_ms`, and a waiter per wait time.
pub fn lock(name: &str, fences: &[u64], held_ms: i64, waited_ms: &[i64]) -> NamedLock {
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
    NamedLock {
        name: name.as_bytes().to_vec(),
        info: Some(redis_dlock_client::LockInfo::from_redis_value(info).expect("a reply of DLOCK.INFO")),
    }
}

pub fn sample(locks: Vec<NamedLock>, counters: &[(&str, u64)]) -> Sample {
    let counters: BTreeMap<String, u64> = counters
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    Sample {
        servers: 1,
        role: "primary",
        unreachable: Vec::new(),
        counters,
        locks,
        elapsed: Duration::from_secs(2),
    }
}

/// Most waiters: b. Held the longest: c. Longest wait: a.
pub fn three() -> Vec<NamedLock> {
    vec![
        lock("a", &[1], 1_000, &[9_000]),
        lock("b", &[2], 2_000, &[500, 400]),
        lock("c", &[3], 3_000, &[]),
    ]
}

fn names(state: &State) -> String {
    state.rows().iter().map(|lock| display_name(&lock.name)).collect()
}

pub fn press(state: &mut State, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            key => KeyCode::Char(key),
        };
        state.on_key(KeyEvent::from(code));
    }
}

pub fn state(locks: Vec<NamedLock>) -> State {
    let mut state = State::default();
    state.update(sample(locks, &[]));
    state
}

#[test]
fn selection_follows_its_lock() {
    let mut state = state(three());
    press(&mut state, "↓↓↓↓");
    assert_eq!(state.selected_name(), Some(&b"c"[..]));
    press(&mut state, "↑");
    assert_eq!(state.selected_name(), Some(&b"a"[..]));
    press(&mut state, "s");
    assert_eq!(state.selected_name(), Some(&b"a"[..]));
    // After its release the first lock is selected.
    state.update(sample(vec![lock("c", &[3], 0, &[])], &[]));
    assert_eq!(state.selected_name(), Some(&b"c"[..]));
    state.update(sample(vec![], &[]));
    assert_eq!(state.selected_name(), None);
    press(&mut state, "↓↑\n");
    assert_eq!(state.mode, Mode::List);
}

#[test]
fn shown_lock_stays_selected_while_released() {
    let mut state = state(three());
    press(&mut state, "\n");
    assert_eq!(state.mode, Mode::Lock);
    state.update(sample(vec![], &[]));
    assert!(state.selected().is_none());
    state.update(sample(three(), &[]));
    assert_eq!(state.selected().map(|lock| lock.waiting()), Some(2));
    press(&mut state, "\x1b");
    assert_eq!(state.mode, Mode::List);
}

#[test]
fn rate_is_per_second_and_survives_server_restart() {
    let mut state = State::default();
    let mut rates = Vec::new();
    for acquired in [100, 110, 110, 4] {
        state.update(sample(vec![], &[("acquired", acquired)]));
        rates.push(state.acquired.per_second);
    }
    assert_eq!(rates, [0, 5, 0, 2]);
}

#[test]
fn error_is_kept_until_next_sample() {
    let mut state = state(three());
    state.set_error("no server".to_owned());
    assert_eq!(state.error.as_deref(), Some("no server"));
    assert_eq!(names(&state), "bac");
    state.update(sample(vec![], &[]));
    assert_eq!(state.error, None);
}
