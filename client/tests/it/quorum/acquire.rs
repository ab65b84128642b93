//! Healthy servers.

use super::*;

#[tokio::test]
async fn quorum_lock_is_held_everywhere_under_one_fence() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks();
    let mut last = 0;
    for _ in 0..20 {
        let guard = locks.acquire("door").await.unwrap();
        nodes.until_held("door", 5).await;
        assert_eq!(nodes.holders("door"), vec![guard.owner().to_string(); 5]);
        let fences = nodes.fences("door");
        let confirmed = fences.iter().filter(|fence| **fence == guard.fence()).count();
        assert!(confirmed >= 3, "{fences:?}");
        assert!(guard.fence() > last);
        last = guard.fence();
        assert!(guard.is_held() && guard.lost_reason().is_none());
        guard.release().await.unwrap();
        nodes.until_free("door").await;
    }
}
