package dlock;

import io.lettuce.core.RedisCommandExecutionException;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.RejectedExecutionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** Errors of servers and connections, and what they mean. */
final class Errors {
    /** What is sent: an ACQUIRE that waits or one that does not, EXTEND, RELEASE, GUARD. */
    enum Sent {
        WAIT,
        TRY,
        EXTEND,
        RELEASE,
        GUARD
    }

    /** The tables of docs/client-authors.md: what is sent again after an error with one of these words. */
    private static final Map<String, Set<Sent>> AGAIN = new HashMap<>();

    /** What finds with these words that the lock is lost. */
    private static final Map<String, Set<Sent>> LOST = new HashMap<>();

    static {
        row(AGAIN, "CONNECTION", Sent.WAIT, Sent.TRY, Sent.EXTEND, Sent.RELEASE);
        row(AGAIN, "MOVED ASK", Sent.values());
        row(
                AGAIN,
                "TRYAGAIN CLUSTERDOWN READONLY MASTERDOWN LOADING UNBLOCKED BUSY MISCONF NOREPLICAS OOM",
                Sent.WAIT,
                Sent.EXTEND,
                Sent.RELEASE);
        row(AGAIN, "GRACE QUEUEFULL", Sent.WAIT, Sent.EXTEND);
        row(LOST, "NOTHELD NOTOWNER STALE", Sent.EXTEND, Sent.RELEASE, Sent.GUARD);
        row(LOST, "WRONGTYPE", Sent.EXTEND, Sent.RELEASE);
    }

    private static final Pattern WORD = Pattern.compile("[A-Z][A-Z0-9]+(?= |$)");
    private static final Pattern NO_MODULE =
            Pattern.compile("ERR unknown command ['`]?dlock", Pattern.CASE_INSENSITIVE);

    private Errors() {}

    private static void row(Map<String, Set<Sent>> table, String words, Sent... sent) {
        for (String word : words.split(" ")) {
            table.put(word, EnumSet.copyOf(Arrays.asList(sent)));
        }
    }

    static boolean isAgain(LockException error, Sent sent) {
        return !(error instanceof NoCluster) && AGAIN.getOrDefault(error.word(), Set.of()).contains(sent);
    }

    static boolean isLost(LockException error, Sent sent) {
        return LOST.getOrDefault(error.word(), Set.of()).contains(sent);
    }

    static boolean isNoReply(LockException error) {
        return error.word().equals("CONNECTION");
    }

    static LockException noReply(String server, String why, @Nullable Throwable cause) {
        return new LockException("CONNECTION", "no reply from " + server + ": " + why, cause);
    }

    /** Its client was shut down. */
    static LockException shutDown(String server, @Nullable Throwable cause) {
        return new LockException("CLOSED", "the client of " + server + " was shut down", cause);
    }

    static LockException closed() {
        return new LockException("CLOSED", "the Locks were closed", null);
    }

    /** An error of Lettuce as one of ours. Only those of servers begin with a word in capitals. */
    static LockException of(Throwable error, String server) {
        if (error instanceof LockException ours) {
            return ours;
        }
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof RedisCommandExecutionException) {
                return ofServer(String.valueOf(cause.getMessage()), server, error);
            }
            if (cause instanceof RejectedExecutionException) {
                return shutDown(server, error);
            }
        }
        Throwable last = error.getCause() == null ? error : error.getCause();
        return noReply(server, last.getMessage() == null ? last.toString() : last.getMessage(), error);
    }

    /** An error that a server has told in this message. */
    static LockException ofServer(String message, String server, @Nullable Throwable cause) {
        if (NO_MODULE.matcher(message).lookingAt()) {
            String advice = "ERR %s does not have the DLOCK module: load it, or connect to another server";
            return new LockException("ERR", advice.formatted(server), cause);
        }
        Matcher word = WORD.matcher(message);
        return new LockException(word.lookingAt() ? word.group() : "ERR", message, cause);
    }

    /** A node of a cluster has sent elsewhere, but the program's client knows only one server. */
    static final class NoCluster extends LockException {
        private static final long serialVersionUID = 1;
        private static final String ADVICE = " is a node of a cluster: pass a RedisClusterClient";

        NoCluster(String server, LockException cause) {
            super(cause.word(), cause.getMessage() + ": " + server + ADVICE, cause);
        }
    }
}
