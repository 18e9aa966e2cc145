-- Money, rates and discounts are integers in hundredths; instants are RFC 3339 in UTC to the second, so that they sort as
-- text; dates are YYYY-MM-DD. Every list index ends with the list's order, so that a page is read without sorting.
--
-- The column json is a record as the public API shows it. The views connect_* have the records of /connect/v1 in the
-- column record, and in the column search the text that words are looked for in.

CREATE TABLE businesses (
	id TEXT PRIMARY KEY, name TEXT NOT NULL, slug TEXT NOT NULL UNIQUE, email TEXT, phone TEXT, website_url TEXT,
	time_zone TEXT NOT NULL, account_status TEXT NOT NULL CHECK (account_status IN ('active', 'inactive')),
	created_at TEXT NOT NULL, updated_at TEXT NOT NULL, version INTEGER NOT NULL DEFAULT 1, business_id TEXT NOT NULL AS (id),
	json TEXT NOT NULL AS (json_object('id', id, 'name', name, 'slug', slug, 'email', email, 'phone', phone,
		'website_url', website_url, 'time_zone', time_zone, 'account_status', account_status, 'business_id', id)) STORED
) STRICT, WITHOUT ROWID;

CREATE TABLE contacts (
	id INTEGER PRIMARY KEY AUTOINCREMENT, business_id TEXT NOT NULL REFERENCES businesses (id), first_name TEXT NOT NULL,
	last_name TEXT, email TEXT, phone_number TEXT, country_code TEXT,
	contact_type TEXT NOT NULL CHECK (contact_type IN ('customer', 'lead', 'vendor')),
	contact_status TEXT NOT NULL CHECK (contact_status IN ('active', 'inactive')), notes TEXT, date_created TEXT NOT NULL,
	date_modified TEXT NOT NULL, version INTEGER NOT NULL DEFAULT 1,
	json TEXT NOT NULL AS (json_object('id', id, 'business_id', business_id, 'first_name', first_name,
		'last_name', last_name, 'email', email, 'phone_number', phone_number, 'country_code', country_code,
		'contact_type', contact_type, 'contact_status', contact_status, 'notes', notes, 'date_created', date_created,
		'date_modified', date_modified)) STORED,
	CHECK ((phone_number IS NULL) = (country_code IS NULL))
) STRICT;
CREATE INDEX contacts_newest ON contacts (business_id, date_created DESC, id DESC);
CREATE INDEX contacts_by_status ON contacts (business_id, contact_status, date_created DESC, id DESC);
CREATE INDEX contacts_by_type ON contacts (business_id, contact_type, date_created DESC, id DESC);

CREATE TABLE jobs (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id),
	contact_id INTEGER NOT NULL REFERENCES contacts (id), job_number TEXT NOT NULL, name TEXT NOT NULL, description TEXT,
	work_status TEXT NOT NULL CHECK (work_status IN ('draft', 'sent', 'scheduled', 'in_progress', 'completed', 'cancelled')),
	total_amount INTEGER NOT NULL CHECK (total_amount >= 0),
	outstanding_balance INTEGER NOT NULL CHECK (outstanding_balance BETWEEN 0 AND total_amount), lead_source TEXT,
	created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
	json TEXT NOT NULL AS (json_object('id', id, 'business_id', business_id, 'job_number', job_number, 'name', name,
		'description', description, 'work_status', work_status, 'total_amount', decimal(total_amount),
		'outstanding_balance', decimal(outstanding_balance), 'lead_source', lead_source, 'created_at', created_at,
		'updated_at', updated_at)) STORED,
	UNIQUE (business_id, job_number)
) STRICT;
CREATE INDEX jobs_newest ON jobs (business_id, created_at DESC, id DESC);
CREATE INDEX jobs_by_status ON jobs (business_id, work_status, created_at DESC, id DESC);

CREATE TABLE estimates (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id),
	contact_id INTEGER NOT NULL REFERENCES contacts (id), job_id TEXT REFERENCES jobs (id), estimate_number TEXT NOT NULL,
	title TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('draft', 'sent', 'approved', 'declined', 'expired')),
	payment_status TEXT NOT NULL CHECK (payment_status IN ('unpaid', 'partial', 'paid')), subtotal INTEGER NOT NULL,
	discount_type TEXT CHECK (discount_type IN ('percentage', 'fixed')), discount_value INTEGER,
	discount_amount INTEGER NOT NULL DEFAULT 0, tax_rate INTEGER NOT NULL, tax_amount INTEGER NOT NULL,
	total_amount INTEGER NOT NULL, deposit_required INTEGER NOT NULL CHECK (deposit_required IN (0, 1)), deposit_amount INTEGER,
	amount_paid INTEGER NOT NULL, expires_at TEXT, sent_at TEXT, approved_at TEXT, created_at TEXT NOT NULL,
	updated_at TEXT NOT NULL,
	json TEXT NOT NULL AS (json_object('id', id, 'business_id', business_id, 'estimate_number', estimate_number,
		'title', title, 'status', status, 'payment_status', payment_status, 'subtotal', decimal(subtotal),
		'discount_type', discount_type, 'discount_value', decimal(discount_value), 'tax_rate', decimal(tax_rate),
		'tax_amount', decimal(tax_amount), 'total_amount', decimal(total_amount),
		'deposit_required', json(iif(deposit_required, 'true', 'false')), 'deposit_amount', decimal(deposit_amount),
		'amount_paid', decimal(amount_paid), 'expires_at', expires_at, 'sent_at', sent_at, 'approved_at', approved_at,
		'created_at', created_at, 'updated_at', updated_at)) STORED,
	UNIQUE (business_id, estimate_number), CHECK (total_amount = subtotal - discount_amount + tax_amount),
	CHECK ((discount_type IS NULL) = (discount_value IS NULL)), CHECK (deposit_required = (deposit_amount IS NOT NULL)),
	CHECK (amount_paid BETWEEN 0 AND total_amount)
) STRICT;
CREATE INDEX estimates_newest ON estimates (business_id, created_at DESC, id DESC);
CREATE INDEX estimates_by_status ON estimates (business_id, status, created_at DESC, id DESC);
CREATE INDEX estimates_by_payment ON estimates (business_id, payment_status, created_at DESC, id DESC);

CREATE TABLE invoices (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id),
	contact_id INTEGER NOT NULL REFERENCES contacts (id), job_id TEXT REFERENCES jobs (id), invoice_number TEXT NOT NULL,
	title TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('draft', 'sent', 'viewed', 'paid', 'overdue', 'voided')),
	subtotal INTEGER NOT NULL, discount_type TEXT CHECK (discount_type IN ('percentage', 'fixed')), discount_value INTEGER,
	discount_amount INTEGER NOT NULL DEFAULT 0, tax_rate INTEGER NOT NULL, tax_amount INTEGER NOT NULL,
	total_amount INTEGER NOT NULL, paid_amount INTEGER NOT NULL, due_at TEXT, issued_at TEXT, sent_at TEXT, paid_at TEXT,
	created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
	json TEXT NOT NULL AS (json_object('id', id, 'business_id', business_id, 'invoice_number', invoice_number,
		'title', title, 'status', status, 'subtotal', decimal(subtotal), 'discount_type', discount_type,
		'discount_value', decimal(discount_value), 'tax_rate', decimal(tax_rate), 'tax_amount', decimal(tax_amount),
		'total_amount', decimal(total_amount), 'paid_amount', decimal(paid_amount), 'due_at', due_at, 'issued_at', issued_at,
		'sent_at', sent_at, 'paid_at', paid_at, 'created_at', created_at, 'updated_at', updated_at)) STORED,
	UNIQUE (business_id, invoice_number), CHECK (total_amount = subtotal - discount_amount + tax_amount),
	CHECK ((discount_type IS NULL) = (discount_value IS NULL)), CHECK (paid_amount BETWEEN 0 AND total_amount),
	CHECK ((status = 'paid') = (paid_at IS NOT NULL))
) STRICT;
CREATE INDEX invoices_newest ON invoices (business_id, created_at DESC, id DESC);
CREATE INDEX invoices_by_status ON invoices (business_id, status, created_at DESC, id DESC);

CREATE TABLE offerings (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id), name TEXT NOT NULL,
	type TEXT NOT NULL CHECK (type IN ('service', 'product')), status TEXT NOT NULL CHECK (status IN ('active', 'inactive')),
	description TEXT, service_details TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(service_details)),
	dont_book_appointment INTEGER NOT NULL CHECK (dont_book_appointment IN (0, 1)),
	appointment_duration INTEGER CHECK (appointment_duration > 0), created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
	json TEXT NOT NULL AS (json_object('id', id, 'business_id', business_id, 'name', name, 'type', type,
		'status', status, 'description', description, 'service_details', json(service_details),
		'dont_book_appointment', json(iif(dont_book_appointment, 'true', 'false')),
		'appointment_duration', appointment_duration, 'created_at', created_at, 'updated_at', updated_at)) STORED
) STRICT;
CREATE INDEX offerings_newest ON offerings (business_id, created_at DESC, id DESC);
CREATE INDEX offerings_by_status ON offerings (business_id, status, created_at DESC, id DESC);

CREATE TABLE equipment (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id), equipment_number TEXT NOT NULL,
	name TEXT NOT NULL, serial_number TEXT, tracking_mode TEXT NOT NULL CHECK (tracking_mode IN ('individual', 'bulk')),
	quantity INTEGER NOT NULL CHECK (quantity >= 0), category TEXT NOT NULL, model TEXT, manufacturer TEXT,
	status TEXT NOT NULL CHECK (status IN ('available', 'assigned', 'maintenance', 'retired')), purchase_date TEXT,
	maintenance_interval_days INTEGER CHECK (maintenance_interval_days > 0), next_maintenance_date TEXT,
	created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
	json TEXT NOT NULL AS (json_object('id', id, 'business_id', business_id, 'equipment_number', equipment_number,
		'name', name, 'serial_number', serial_number, 'tracking_mode', tracking_mode, 'quantity', quantity,
		'category', category, 'model', model, 'manufacturer', manufacturer, 'status', status, 'purchase_date', purchase_date,
		'maintenance_interval_days', maintenance_interval_days, 'next_maintenance_date', next_maintenance_date,
		'created_at', created_at, 'updated_at', updated_at)) STORED,
	UNIQUE (business_id, equipment_number)
) STRICT;
CREATE INDEX equipment_newest ON equipment (business_id, created_at DESC, id DESC);
CREATE INDEX equipment_by_status ON equipment (business_id, status, created_at DESC, id DESC);
CREATE INDEX equipment_by_category ON equipment (business_id, category, created_at DESC, id DESC);

CREATE TABLE events (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id),
	status TEXT NOT NULL CHECK (status IN ('draft', 'published', 'archived')), title TEXT NOT NULL, description TEXT,
	url TEXT NOT NULL, type TEXT NOT NULL CHECK (type IN ('single-day', 'multi-day', 'recurring')),
	location_type TEXT NOT NULL CHECK (location_type IN ('in-person', 'virtual', 'hybrid')), venue TEXT, address TEXT,
	virtual_link TEXT, is_free INTEGER NOT NULL CHECK (is_free IN (0, 1)), image_url TEXT,
	schedule TEXT NOT NULL CHECK (json_valid(schedule)), -- [{date, start_time, end_time}]
	media TEXT NOT NULL CHECK (json_valid(media)), -- [{url, file_type, caption, featured}]
	published_at TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
	json TEXT NOT NULL AS (json_object('id', id, 'business_id', business_id, 'status', status, 'title', title,
		'description', description, 'url', url, 'type', type, 'schedule', json(schedule), 'location_type', location_type,
		'venue', venue, 'address', address, 'virtual_link', virtual_link, 'is_free', json(iif(is_free, 'true', 'false')),
		'image_url', image_url, 'media', json(media), 'published_at', published_at, 'created_at', created_at)) STORED,
	CHECK (status <> 'published' OR published_at IS NOT NULL), CHECK (status <> 'draft' OR published_at IS NULL)
) STRICT;
CREATE INDEX events_newest ON events (business_id, published_at DESC, created_at DESC, id DESC);
CREATE INDEX events_by_status ON events (business_id, status, published_at DESC, created_at DESC, id DESC);

CREATE TABLE accounts (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id), email TEXT NOT NULL,
	email_key TEXT NOT NULL UNIQUE AS (fold(email)) STORED, name TEXT NOT NULL, role TEXT NOT NULL CHECK (role IN ('owner', 'member')),
	status TEXT NOT NULL CHECK (status IN ('active', 'disabled')), password_hash TEXT NOT NULL, created_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Answers that are given again to the same request. hash is of the request.
CREATE TABLE idempotency_keys (
	business_id TEXT NOT NULL REFERENCES businesses (id), account_id TEXT NOT NULL REFERENCES accounts (id), key TEXT NOT NULL,
	hash BLOB NOT NULL, status INTEGER NOT NULL, body BLOB NOT NULL, created_at TEXT NOT NULL,
	PRIMARY KEY (business_id, account_id, key)
) STRICT, WITHOUT ROWID;

-- What is read as a whole and changed in parts: opening hours, service areas, and the receptionist's personality with its
-- rules. Hours have all weekdays, then the dates with other hours in order.
CREATE TABLE documents (
	business_id TEXT NOT NULL REFERENCES businesses (id),
	name TEXT NOT NULL CHECK (name IN ('hours', 'service-areas', 'receptionist')),
	content TEXT NOT NULL CHECK (json_valid(content)), version INTEGER NOT NULL DEFAULT 1, updated_at TEXT NOT NULL,
	PRIMARY KEY (business_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE conversations (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id),
	channel TEXT NOT NULL CHECK (channel IN ('call', 'sms', 'chat', 'email')),
	contact_id INTEGER REFERENCES contacts (id) ON DELETE SET NULL, caller_name TEXT, caller_address TEXT,
	started_at TEXT NOT NULL, ended_at TEXT,
	outcome TEXT NOT NULL CHECK (outcome IN ('answered', 'appointment_booked', 'message_taken', 'transferred', 'abandoned')),
	summary TEXT,
	messages TEXT NOT NULL CHECK (json_valid(messages)) -- [{id, at, from, text}]
) STRICT;
CREATE INDEX conversations_newest ON conversations (business_id, started_at DESC, id DESC);

CREATE TABLE calendars (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id), name TEXT NOT NULL, owner_name TEXT,
	time_zone TEXT NOT NULL
) STRICT;
CREATE INDEX calendars_by_name ON calendars (business_id, name, id);

CREATE TABLE appointments (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id),
	calendar_id TEXT NOT NULL REFERENCES calendars (id), contact_id INTEGER REFERENCES contacts (id) ON DELETE SET NULL,
	title TEXT NOT NULL, notes TEXT, location TEXT, starts_at TEXT NOT NULL, ends_at TEXT NOT NULL,
	status TEXT NOT NULL CHECK (status IN ('scheduled', 'confirmed', 'completed', 'cancelled', 'no_show')),
	booked_by TEXT NOT NULL CHECK (booked_by IN ('receptionist', 'staff', 'online')), created_at TEXT NOT NULL,
	updated_at TEXT NOT NULL, CHECK (starts_at < ends_at)
) STRICT;
CREATE INDEX appointments_earliest ON appointments (business_id, starts_at, id);

CREATE TABLE receptionist_faqs (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id), question TEXT NOT NULL,
	lookup_key TEXT NOT NULL AS (folded_key(question)) STORED, answer TEXT NOT NULL, enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)), version INTEGER NOT NULL DEFAULT 1,
	created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE (business_id, lookup_key)
) STRICT;
CREATE INDEX receptionist_faqs_oldest ON receptionist_faqs (business_id, created_at, id);

CREATE TABLE receptionist_services (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id), name TEXT NOT NULL,
	lookup_key TEXT NOT NULL AS (folded_key(name)) STORED, description TEXT, duration_minutes INTEGER CHECK (duration_minutes BETWEEN 5 AND 1440), price INTEGER CHECK (price >= 0),
	bookable INTEGER NOT NULL CHECK (bookable IN (0, 1)), version INTEGER NOT NULL DEFAULT 1, created_at TEXT NOT NULL,
	updated_at TEXT NOT NULL, UNIQUE (business_id, lookup_key), CHECK (bookable = 0 OR duration_minutes IS NOT NULL)
) STRICT;
CREATE INDEX receptionist_services_oldest ON receptionist_services (business_id, created_at, id);

-- action names the code that does it.
CREATE TABLE automations (
	business_id TEXT NOT NULL REFERENCES businesses (id), id TEXT NOT NULL, action TEXT NOT NULL, name TEXT NOT NULL,
	description TEXT NOT NULL, enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
	writes_to_people INTEGER NOT NULL CHECK (writes_to_people IN (0, 1)),
	input_schema TEXT NOT NULL CHECK (json_valid(input_schema)), PRIMARY KEY (business_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE automation_runs (
	sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, business_id TEXT NOT NULL, automation_id TEXT NOT NULL,
	status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'succeeded', 'failed')),
	progress INTEGER NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 100), message TEXT,
	steps TEXT NOT NULL CHECK (json_valid(steps)), input TEXT NOT NULL CHECK (json_valid(input)),
	dry_run INTEGER NOT NULL CHECK (dry_run IN (0, 1)), started_by TEXT NOT NULL REFERENCES accounts (id), created_at TEXT NOT NULL, started_at TEXT, finished_at TEXT,
	result TEXT CHECK (result IS NULL OR json_valid(result)), error TEXT CHECK (error IS NULL OR json_valid(error)),
	FOREIGN KEY (business_id, automation_id) REFERENCES automations (business_id, id),
	CHECK ((status IN ('succeeded', 'failed')) = (finished_at IS NOT NULL)), CHECK ((status = 'failed') = (error IS NOT NULL))
) STRICT;
CREATE INDEX automation_runs_of_automation ON automation_runs (business_id, automation_id, sequence);
CREATE INDEX automation_runs_by_status ON automation_runs (status, sequence);
CREATE UNIQUE INDEX automation_runs_one_at_a_time ON automation_runs (business_id, automation_id)
	WHERE status IN ('queued', 'running');

-- What automations have written to people, for a mailer to send.
CREATE TABLE outbox (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL REFERENCES businesses (id),
	run_id TEXT NOT NULL REFERENCES automation_runs (id), kind TEXT NOT NULL, subject_id TEXT NOT NULL,
	contact_id INTEGER REFERENCES contacts (id) ON DELETE SET NULL, recipient TEXT NOT NULL, subject TEXT NOT NULL,
	body TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE (run_id, subject_id)
) STRICT;
CREATE INDEX outbox_of_subject ON outbox (business_id, kind, subject_id, created_at);

CREATE TABLE object_types (
	business_id TEXT NOT NULL REFERENCES businesses (id), name TEXT NOT NULL, title TEXT NOT NULL, description TEXT,
	schema TEXT NOT NULL CHECK (json_valid(schema)), PRIMARY KEY (business_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE objects (
	id TEXT PRIMARY KEY, business_id TEXT NOT NULL, type TEXT NOT NULL, fields TEXT NOT NULL CHECK (json_valid(fields)),
	version INTEGER NOT NULL DEFAULT 1, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
	FOREIGN KEY (business_id, type) REFERENCES object_types (business_id, name)
) STRICT;
CREATE INDEX objects_newest ON objects (business_id, type, created_at DESC, id DESC);

CREATE VIEW connect_businesses AS
SELECT *, json_insert(json, '$.updated_at', updated_at, '$.version', version) AS record FROM businesses;

CREATE VIEW connect_contacts AS
SELECT *, json_insert(json, '$.version', version) AS record, concat_ws(' ',
	first_name, last_name, email, phone_number, country_code || phone_number, notes) AS search
FROM contacts;

CREATE VIEW people AS SELECT id, concat_ws(' ', first_name, last_name) AS name, email FROM contacts;

CREATE VIEW connect_invoices AS
SELECT i.*, json_insert(json, '$.contact_id', contact_id, '$.job_id', job_id, '$.contact_name', p.name) AS record,
	concat_ws(' ', invoice_number, title, p.name) AS search
FROM invoices i JOIN people p ON p.id = contact_id;

CREATE VIEW connect_estimates AS
SELECT e.*, json_insert(json, '$.contact_id', contact_id, '$.job_id', job_id, '$.contact_name', p.name) AS record,
	concat_ws(' ', estimate_number, title, p.name) AS search
FROM estimates e JOIN people p ON p.id = contact_id;

CREATE VIEW connect_jobs AS
SELECT j.*, json_insert(json, '$.contact_id', contact_id, '$.contact_name', p.name) AS record,
	concat_ws(' ', job_number, j.name, description, p.name) AS search
FROM jobs j JOIN people p ON p.id = contact_id;

CREATE VIEW connect_conversations AS
SELECT *, concat_ws(' ', caller_name, caller_address, summary,
	(SELECT group_concat(value ->> 'text', ' ') FROM json_each(messages))) AS search,
	json_object('id', id, 'business_id', business_id, 'channel', channel, 'contact_id', contact_id,
		'caller_name', caller_name, 'caller_address', caller_address, 'started_at', started_at, 'ended_at', ended_at,
		'outcome', outcome, 'summary', summary, 'message_count', json_array_length(messages)) AS record
FROM conversations;

CREATE VIEW connect_conversations_alone AS
SELECT id, business_id, json_insert(record, '$.messages',
	json((SELECT json_group_array(json(value)) FROM json_each(messages) WHERE key < 500))) AS record
FROM connect_conversations;

CREATE VIEW connect_calendars AS
SELECT *, json_object('id', id, 'business_id', business_id, 'name', name, 'owner_name', owner_name,
	'time_zone', time_zone) AS record
FROM calendars;

CREATE VIEW connect_appointments AS
SELECT a.*, json_object('id', a.id, 'business_id', a.business_id, 'calendar_id', calendar_id, 'calendar_name', k.name,
	'contact_id', contact_id, 'contact_name', p.name, 'title', title, 'notes', notes, 'location', location,
	'starts_at', starts_at, 'ends_at', ends_at, 'status', status, 'booked_by', booked_by, 'created_at', created_at,
	'updated_at', updated_at) AS record
FROM appointments a JOIN calendars k ON k.id = calendar_id LEFT JOIN people p ON p.id = contact_id;

CREATE VIEW connect_faqs AS
SELECT *, concat_ws(' ', question, answer) AS search, json_object('id', id, 'business_id', business_id,
	'version', version, 'created_at', created_at, 'updated_at', updated_at, 'question', question, 'answer', answer,
	'enabled', json(iif(enabled, 'true', 'false'))) AS record
FROM receptionist_faqs;

CREATE VIEW connect_services AS
SELECT *, concat_ws(' ', name, description) AS search, json_object('id', id, 'business_id', business_id,
	'version', version, 'created_at', created_at, 'updated_at', updated_at, 'name', name, 'description', description,
	'duration_minutes', duration_minutes, 'price', decimal(price),
	'bookable', json(iif(bookable, 'true', 'false'))) AS record
FROM receptionist_services;

CREATE VIEW connect_automations AS
SELECT *, json_object('id', id, 'business_id', business_id, 'name', name, 'description', description,
	'enabled', json(iif(enabled, 'true', 'false')), 'writes_to_people', json(iif(writes_to_people, 'true', 'false')), 'input_schema', json(input_schema), 'last_run', json((
		SELECT json_object('id', id, 'status', status, 'finished_at', finished_at) FROM automation_runs r
		WHERE r.business_id = a.business_id AND automation_id = a.id ORDER BY sequence DESC LIMIT 1))) AS record
FROM automations a;

CREATE VIEW connect_runs AS
SELECT *, json_object('id', id, 'business_id', business_id, 'automation_id', automation_id, 'status', status,
	'dry_run', json(iif(dry_run, 'true', 'false')), 'progress', progress, 'message', message, 'steps', json(steps),
	'input', json(input), 'started_by', started_by,
	'created_at', created_at, 'started_at', started_at, 'finished_at', finished_at, 'result', json(result),
	'error', json(error)) AS record
FROM automation_runs;

CREATE VIEW connect_object_types AS
SELECT *, name AS id, json_object('name', name, 'business_id', business_id, 'title', title, 'description', description,
	'object_count', (SELECT count(*) FROM objects o WHERE o.business_id = t.business_id AND type = t.name)) AS record
FROM object_types t;

CREATE VIEW connect_object_types_alone AS
SELECT id, business_id, json_insert(record, '$.schema', json(schema)) AS record FROM connect_object_types;

CREATE VIEW connect_objects AS
SELECT *, (SELECT group_concat(atom, ' ') FROM json_tree(fields) WHERE type IN ('text', 'integer', 'real')) AS search,
	json_object('id', id, 'business_id', business_id, 'type', type, 'fields', json(fields),
	'version', version, 'created_at', created_at, 'updated_at', updated_at) AS record
FROM objects;
