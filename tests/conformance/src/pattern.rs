//! What a scenario expects of a value.

use serde_json::Value;

/// How a value differs from a pattern; `None` if it matches. `fence_of` is the fence of a named grant.
///
/// A pattern is a value itself, or one of `{"min": 1, "max": 5}`, `{"one_of": [...]}`, `{"same_fence_as": NAME}` and
/// `{"larger_fence_than": NAME}`. An object matches if each of its fields does.
pub fn difference(pattern: &Value, value: &Value, fence_of: &impl Fn(&str) -> Option<u64>) -> Option<String> {
    if matches(pattern, value, fence_of) {
        return None;
    }
    Some(format!("expected {pattern}, got {value}"))
}

fn matches(pattern: &Value, value: &Value, fence_of: &impl Fn(&str) -> Option<u64>) -> bool {
    match pattern {
        Value::Object(fields) => fields.iter().all(|(name, expected)| match name.as_str() {
            "min" => is_ordered(expected, value),
            "max" => is_ordered(value, expected),
            "one_of" => list(expected)
                .iter()
                .any(|choice| matches(choice, value, fence_of)),
            "same_fence_as" => fence(expected, fence_of).is_some_and(|fence| value.as_u64() == Some(fence)),
            "larger_fence_than" => {
                fence(expected, fence_of).is_some_and(|fence| value.as_u64() > Some(fence))
            }
            name => matches(expected, &value[name], fence_of),
        }),
        Value::Array(patterns) => {
            let values = list(value);
            patterns.len() == values.len()
                && patterns
                    .iter()
                    .zip(values)
                    .all(|(pattern, value)| matches(pattern, value, fence_of))
        }
        _ => pattern == value,
    }
}

fn is_ordered(small: &Value, large: &Value) -> bool {
    matches!((small.as_f64(), large.as_f64()), (Some(small), Some(large)) if small <= large)
}

fn fence(name: &Value, fence_of: &impl Fn(&str) -> Option<u64>) -> Option<u64> {
    fence_of(name.as_str()?)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assert_matches(pattern: Value, good: &[Value], bad: &[Value]) {
        let fence_of = |name: &str| (name == "first").then_some(7);
        for value in good {
            assert_eq!(difference(&pattern, value, &fence_of), None);
        }
        for value in bad {
            assert!(
                difference(&pattern, value, &fence_of).is_some(),
                "{pattern} {value}"
            );
        }
    }

    #[test]
    fn pattern_matches_value_ranges_and_choices() {
        assert_matches(
            json!({"held": true}),
            &[json!({"held": true, "fence": 1})],
            &[json!({"held": false}), json!({}), json!(null)],
        );
        assert_matches(
            json!({"min": 2, "max": 4}),
            &[json!(2), json!(3.5), json!(4)],
            &[json!(1), json!(5), json!("3"), json!(null)],
        );
        assert_matches(
            json!({"one_of": [{"held": true}, {"error": "A"}]}),
            &[json!({"held": true}), json!({"error": "A"})],
            &[json!({"error": "B"})],
        );
        assert_matches(
            json!([{"min": 1}, "x"]),
            &[json!([1, "x"])],
            &[json!([1]), json!([0, "x"]), json!(null)],
        );
        assert_matches(json!({"lost": null}), &[json!({})], &[json!({"lost": true})]);
    }

    #[test]
    fn pattern_compares_fences_of_named_grants() {
        assert_matches(
            json!({"larger_fence_than": "first"}),
            &[json!(8)],
            &[json!(7), json!(null)],
        );
        assert_matches(
            json!({"same_fence_as": "first"}),
            &[json!(7)],
            &[json!(8), json!(null)],
        );
        assert_matches(json!({"same_fence_as": "second"}), &[], &[json!(7), json!(null)]);
    }
}
