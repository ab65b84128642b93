-- The tables of fenced_postgres.py: psql -d shop -f fences.sql

-- The largest fence that has written under each lock. Delete only rows of locks that will never be used again.
CREATE TABLE fences (
    lock  text   PRIMARY KEY,
    fence bigint NOT NULL
);

CREATE TABLE accounts (
    id      bigint PRIMARY KEY,
    balance bigint NOT NULL
);

INSERT INTO accounts VALUES (7, 100);
