/** DLOCK for ShedLock: {@link dlock.shedlock.DlockLockProvider}. */
@NullMarked
package dlock.shedlock;

import org.jspecify.annotations.NullMarked;
