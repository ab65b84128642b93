# Turns deploy/single/redis.conf into /etc/redis/redis-dlock.conf, for the service redis-server@dlock of Debian and Ubuntu.
1,/^$/c\
# A server for locks only: systemctl enable --now redis-server@dlock\
# Locks survive a crash of the server, but not the loss of the machine. Change the lines\
# marked HERE. `dlock -p 7379 doctor` then lists any remaining problems.\

/^# Where `make install` puts/,/^# deploy\/systemd/d
s/^port 6379/port 7379/
s|^# HERE: the directory of.*|# HERE: the directory of the append-only file, and the name of the directory in it.|
/^dir /a\
appenddirname dlock\
logfile /var/log/redis/redis-server-dlock.log
