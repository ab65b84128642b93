use std::collections::BTreeMap;

use redis::{FromRedisValue, Value, from_redis_value_ref};

/// The reply to DLOCK.INFO.
#[derive(Clone, Debug, PartialEq)]
pub struct LockInfo {
    pub limit: i64,
    pub holders: Vec<HolderInfo>,
    pub waiting: i64,
    pub waiters: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderInfo {
    pub owner: Vec<u8>,
    pub fence: u64,
    pub holds: u64,
    pub lease_ms: u64,
    pub held_ms: u64,
}

impl LockInfo {
    /// `None` for a null. The fields must be exactly the documented ones, as a map or as a flat array.
    #[track_caller]
    pub fn parse(value: &Value) -> Option<Self> {
        if *value == Value::Nil {
            return None;
        }
        let fields = fields(pairs(value), &["holders", "limit", "waiters", "waiting"]);
        let holders: Vec<Value> = get(&fields, "holders");
        Some(Self {
            limit: get(&fields, "limit"),
            holders: holders.iter().map(HolderInfo::parse).collect(),
            waiting: get(&fields, "waiting"),
            waiters: get(&fields, "waiters"),
        })
    }

    /// The owners, longest-standing first.
    pub fn owners(&self) -> Vec<String> {
        self.holders
            .iter()
            .map(|holder| String::from_utf8_lossy(&holder.owner).into_owned())
            .collect()
    }

    #[track_caller]
    pub fn holder(&self, owner: &str) -> &HolderInfo {
        let mut found = self.holders.iter();
        let found = found.find(|holder| holder.owner == owner.as_bytes());
        found.unwrap_or_else(|| panic!("{owner} is no holder of {self:?}"))
    }

    /// Owner, fence and hold count of each holder: what neither replication nor a restart may change.
    pub fn standing(&self) -> Vec<(String, u64, u64)> {
        let owners = self.owners().into_iter();
        owners
            .zip(&self.holders)
            .map(|(owner, holder)| (owner, holder.fence, holder.holds))
            .collect()
    }
}

impl HolderInfo {
    #[track_caller]
    fn parse(value: &Value) -> Self {
        let fields = fields(pairs(value), &["fence", "held-ms", "holds", "lease-ms", "owner"]);
        Self {
            owner: get(&fields, "owner"),
            fence: get(&fields, "fence"),
            holds: get(&fields, "holds"),
            lease_ms: get(&fields, "lease-ms"),
            held_ms: get(&fields, "held-ms"),
        }
    }
}

#[track_caller]
pub(super) fn pairs(value: &Value) -> Vec<(String, Value)> {
    from_redis_value_ref(value).expect("names and values")
}

#[track_caller]
pub(super) fn fields(pairs: Vec<(String, Value)>, expected: &[&str]) -> BTreeMap<String, Value> {
    let count = pairs.len();
    let fields: BTreeMap<String, Value> = pairs.into_iter().collect();
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, expected, "the fields, sorted, of {fields:?}");
    assert_eq!(count, fields.len(), "each field occurs once");
    fields
}

#[track_caller]
fn get<T: FromRedisValue>(fields: &BTreeMap<String, Value>, name: &str) -> T {
    from_redis_value_ref(&fields[name]).unwrap_or_else(|error| panic!("{name}: {error}"))
}
