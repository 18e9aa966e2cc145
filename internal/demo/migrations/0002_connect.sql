-- What the connection server's calls read and write. Instants are RFC 3339 in
-- UTC to the second, money is in hundredths, as before. Columns named *_key
-- hold the folded text by which a name is taken.

ALTER TABLE businesses ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE contacts ADD COLUMN version INTEGER NOT NULL DEFAULT 1;

CREATE TABLE accounts (
	id            TEXT PRIMARY KEY,
	business_id   TEXT NOT NULL REFERENCES businesses (id),
	email         TEXT NOT NULL,
	email_key     TEXT NOT NULL UNIQUE,
	name          TEXT NOT NULL,
	role          TEXT NOT NULL CHECK (role IN ('owner', 'member')),
	status        TEXT NOT NULL CHECK (status IN ('active', 'disabled')),
	password_hash TEXT NOT NULL,
	created_at    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Answers that are given again to the same request. hash is of the request.
CREATE TABLE idempotency_keys (
	business_id TEXT NOT NULL REFERENCES businesses (id),
	account_id  TEXT NOT NULL REFERENCES accounts (id),
	key         TEXT NOT NULL,
	hash        BLOB NOT NULL,
	status      INTEGER NOT NULL,
	body        BLOB NOT NULL,
	created_at  TEXT NOT NULL,
	PRIMARY KEY (business_id, account_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);

-- What is always read and written as a whole: opening hours, service areas, and
-- the receptionist's personality with its rules.
CREATE TABLE documents (
	business_id TEXT NOT NULL REFERENCES businesses (id),
	name        TEXT NOT NULL CHECK (name IN ('hours', 'service-areas', 'receptionist')),
	content     TEXT NOT NULL CHECK (json_valid(content)),
	version     INTEGER NOT NULL DEFAULT 1,
	updated_at  TEXT NOT NULL,
	PRIMARY KEY (business_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE conversations (
	id             TEXT PRIMARY KEY,
	business_id    TEXT NOT NULL REFERENCES businesses (id),
	channel        TEXT NOT NULL CHECK (channel IN ('call', 'sms', 'chat', 'email')),
	contact_id     INTEGER REFERENCES contacts (id) ON DELETE SET NULL,
	caller_name    TEXT,
	caller_address TEXT,
	started_at     TEXT NOT NULL,
	ended_at       TEXT,
	outcome        TEXT NOT NULL CHECK (outcome IN
		('answered', 'appointment_booked', 'message_taken', 'transferred', 'abandoned')),
	summary        TEXT
) STRICT;

CREATE INDEX conversations_newest ON conversations (business_id, started_at DESC, id DESC);
CREATE INDEX conversations_of_contact ON conversations (contact_id);

CREATE TABLE messages (
	conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
	position        INTEGER NOT NULL,
	id              TEXT NOT NULL,
	at              TEXT NOT NULL,
	sender          TEXT NOT NULL CHECK (sender IN ('caller', 'receptionist', 'staff')),
	text            TEXT NOT NULL,
	PRIMARY KEY (conversation_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE calendars (
	id          TEXT PRIMARY KEY,
	business_id TEXT NOT NULL REFERENCES businesses (id),
	name        TEXT NOT NULL,
	owner_name  TEXT,
	time_zone   TEXT NOT NULL
) STRICT;

CREATE INDEX calendars_by_name ON calendars (business_id, name, id);

CREATE TABLE appointments (
	id          TEXT PRIMARY KEY,
	business_id TEXT NOT NULL REFERENCES businesses (id),
	calendar_id TEXT NOT NULL REFERENCES calendars (id),
	contact_id  INTEGER REFERENCES contacts (id) ON DELETE SET NULL,
	title       TEXT NOT NULL,
	notes       TEXT,
	location    TEXT,
	starts_at   TEXT NOT NULL,
	ends_at     TEXT NOT NULL,
	status      TEXT NOT NULL CHECK (status IN ('scheduled', 'confirmed', 'completed', 'cancelled', 'no_show')),
	booked_by   TEXT NOT NULL CHECK (booked_by IN ('receptionist', 'staff', 'online')),
	created_at  TEXT NOT NULL,
	updated_at  TEXT NOT NULL,
	CHECK (starts_at < ends_at)
) STRICT;

CREATE INDEX appointments_earliest ON appointments (business_id, starts_at, id);
CREATE INDEX appointments_of_contact ON appointments (contact_id, starts_at);

CREATE TABLE receptionist_faqs (
	id           TEXT PRIMARY KEY,
	business_id  TEXT NOT NULL REFERENCES businesses (id),
	question     TEXT NOT NULL,
	lookup_key   TEXT NOT NULL,
	answer       TEXT NOT NULL,
	enabled      INTEGER NOT NULL CHECK (enabled IN (0, 1)),
	version      INTEGER NOT NULL DEFAULT 1,
	created_at   TEXT NOT NULL,
	updated_at   TEXT NOT NULL,
	UNIQUE (business_id, lookup_key)
) STRICT;

CREATE INDEX receptionist_faqs_oldest ON receptionist_faqs (business_id, created_at, id);

CREATE TABLE receptionist_services (
	id               TEXT PRIMARY KEY,
	business_id      TEXT NOT NULL REFERENCES businesses (id),
	name             TEXT NOT NULL,
	lookup_key       TEXT NOT NULL,
	description      TEXT,
	duration_minutes INTEGER CHECK (duration_minutes BETWEEN 5 AND 1440),
	price            INTEGER CHECK (price >= 0),
	bookable         INTEGER NOT NULL CHECK (bookable IN (0, 1)),
	version          INTEGER NOT NULL DEFAULT 1,
	created_at       TEXT NOT NULL,
	updated_at       TEXT NOT NULL,
	UNIQUE (business_id, lookup_key),
	CHECK (bookable = 0 OR duration_minutes IS NOT NULL)
) STRICT;

CREATE INDEX receptionist_services_oldest ON receptionist_services (business_id, created_at, id);

-- action names the code that does it.
CREATE TABLE automations (
	business_id  TEXT NOT NULL REFERENCES businesses (id),
	id           TEXT NOT NULL,
	action       TEXT NOT NULL,
	name         TEXT NOT NULL,
	description  TEXT NOT NULL,
	enabled      INTEGER NOT NULL CHECK (enabled IN (0, 1)),
	input_schema TEXT NOT NULL CHECK (json_valid(input_schema)),
	PRIMARY KEY (business_id, id)
) STRICT, WITHOUT ROWID;

-- A run that is running belongs to the process that has said so until
-- lease_until; after that the process is taken to be gone.
CREATE TABLE automation_runs (
	sequence      INTEGER PRIMARY KEY AUTOINCREMENT,
	id            TEXT NOT NULL UNIQUE,
	business_id   TEXT NOT NULL,
	automation_id TEXT NOT NULL,
	status        TEXT NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed')),
	progress      INTEGER NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100),
	message       TEXT,
	steps         TEXT NOT NULL CHECK (json_valid(steps)),
	input         TEXT NOT NULL CHECK (json_valid(input)),
	started_by    TEXT NOT NULL REFERENCES accounts (id),
	created_at    TEXT NOT NULL,
	started_at    TEXT,
	finished_at   TEXT,
	result        TEXT CHECK (result IS NULL OR json_valid(result)),
	error         TEXT CHECK (error IS NULL OR json_valid(error)),
	lease_until   TEXT,
	FOREIGN KEY (business_id, automation_id) REFERENCES automations (business_id, id),
	CHECK ((status IN ('succeeded', 'failed')) = (finished_at IS NOT NULL)),
	CHECK ((status = 'failed') = (error IS NOT NULL))
) STRICT;

CREATE INDEX automation_runs_of_automation ON automation_runs (business_id, automation_id, sequence);
CREATE INDEX automation_runs_by_status ON automation_runs (status, sequence);
CREATE UNIQUE INDEX automation_runs_one_at_a_time ON automation_runs (business_id, automation_id)
	WHERE status IN ('queued', 'running');

-- What automations have written to people, for a mailer to send.
CREATE TABLE outbox (
	id          TEXT PRIMARY KEY,
	business_id TEXT NOT NULL REFERENCES businesses (id),
	run_id      TEXT NOT NULL REFERENCES automation_runs (id),
	kind        TEXT NOT NULL,
	subject_id  TEXT NOT NULL,
	contact_id  INTEGER REFERENCES contacts (id) ON DELETE SET NULL,
	recipient   TEXT NOT NULL,
	subject     TEXT NOT NULL,
	body        TEXT NOT NULL,
	created_at  TEXT NOT NULL,
	UNIQUE (run_id, subject_id)
) STRICT;

CREATE INDEX outbox_of_subject ON outbox (business_id, kind, subject_id, created_at);
CREATE INDEX outbox_of_contact ON outbox (contact_id);

CREATE TABLE object_types (
	business_id TEXT NOT NULL REFERENCES businesses (id),
	name        TEXT NOT NULL,
	title       TEXT NOT NULL,
	description TEXT,
	schema      TEXT NOT NULL CHECK (json_valid(schema)),
	PRIMARY KEY (business_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE objects (
	id          TEXT PRIMARY KEY,
	business_id TEXT NOT NULL,
	type        TEXT NOT NULL,
	fields      TEXT NOT NULL CHECK (json_valid(fields)),
	search_text TEXT NOT NULL,
	version     INTEGER NOT NULL DEFAULT 1,
	created_at  TEXT NOT NULL,
	updated_at  TEXT NOT NULL,
	FOREIGN KEY (business_id, type) REFERENCES object_types (business_id, name)
) STRICT;

CREATE INDEX objects_newest ON objects (business_id, type, created_at DESC, id DESC);

-- The records of the calls with what is told about them from other tables.

CREATE VIEW connect_invoices AS
SELECT i.*, c.first_name || coalesce(' ' || c.last_name, '') AS contact_name
FROM invoices i JOIN contacts c ON c.id = i.contact_id;

CREATE VIEW connect_estimates AS
SELECT e.*, c.first_name || coalesce(' ' || c.last_name, '') AS contact_name
FROM estimates e JOIN contacts c ON c.id = e.contact_id;

CREATE VIEW connect_jobs AS
SELECT j.*, c.first_name || coalesce(' ' || c.last_name, '') AS contact_name
FROM jobs j JOIN contacts c ON c.id = j.contact_id;

CREATE VIEW connect_conversations AS
SELECT v.*, (SELECT count(*) FROM messages m WHERE m.conversation_id = v.id) AS message_count
FROM conversations v;

CREATE VIEW connect_appointments AS
SELECT a.*, k.name AS calendar_name, c.first_name || coalesce(' ' || c.last_name, '') AS contact_name
FROM appointments a
JOIN calendars k ON k.id = a.calendar_id
LEFT JOIN contacts c ON c.id = a.contact_id;

CREATE VIEW connect_automations AS
SELECT a.*, (
	SELECT json_object('id', r.id, 'status', r.status, 'finished_at', r.finished_at) FROM automation_runs r
	WHERE r.business_id = a.business_id AND r.automation_id = a.id ORDER BY r.sequence DESC LIMIT 1
) AS last_run
FROM automations a;

CREATE VIEW connect_object_types AS
SELECT t.*, (
	SELECT count(*) FROM objects o WHERE o.business_id = t.business_id AND o.type = t.name
) AS object_count
FROM object_types t;
