/** DLOCK for Spring Integration 7 and later: {@link dlock.spring.DlockLockRegistry}. */
@NullMarked
package dlock.spring;

import org.jspecify.annotations.NullMarked;
