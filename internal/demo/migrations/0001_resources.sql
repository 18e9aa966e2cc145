-- Money, rates and discounts are integers in hundredths; instants are RFC 3339
-- in UTC to the second, so that they sort as text; dates are YYYY-MM-DD.
-- Every list index ends with the list's order, newest first, so that a page is
-- read without sorting.

CREATE TABLE businesses (
	id             TEXT PRIMARY KEY,
	name           TEXT NOT NULL,
	slug           TEXT NOT NULL UNIQUE,
	email          TEXT,
	phone          TEXT,
	website_url    TEXT,
	time_zone      TEXT NOT NULL,
	account_status TEXT NOT NULL CHECK (account_status IN ('active', 'inactive')),
	created_at     TEXT NOT NULL,
	updated_at     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE contacts (
	id             INTEGER PRIMARY KEY AUTOINCREMENT,
	business_id    TEXT NOT NULL REFERENCES businesses (id),
	first_name     TEXT NOT NULL,
	last_name      TEXT,
	email          TEXT,
	phone_number   TEXT,
	country_code   TEXT,
	contact_type   TEXT NOT NULL CHECK (contact_type IN ('customer', 'lead', 'vendor')),
	contact_status TEXT NOT NULL CHECK (contact_status IN ('active', 'inactive')),
	notes          TEXT,
	date_created   TEXT NOT NULL,
	date_modified  TEXT NOT NULL,
	CHECK ((phone_number IS NULL) = (country_code IS NULL))
) STRICT;

CREATE INDEX contacts_newest ON contacts (business_id, date_created DESC, id DESC);
CREATE INDEX contacts_by_status ON contacts (business_id, contact_status, date_created DESC, id DESC);
CREATE INDEX contacts_by_type ON contacts (business_id, contact_type, date_created DESC, id DESC);

CREATE TABLE jobs (
	id                  TEXT PRIMARY KEY,
	business_id         TEXT NOT NULL REFERENCES businesses (id),
	contact_id          INTEGER NOT NULL REFERENCES contacts (id),
	job_number          TEXT NOT NULL,
	name                TEXT NOT NULL,
	description         TEXT,
	work_status         TEXT NOT NULL CHECK (work_status IN
		('draft', 'sent', 'scheduled', 'in_progress', 'completed', 'cancelled')),
	total_amount        INTEGER NOT NULL CHECK (total_amount >= 0),
	outstanding_balance INTEGER NOT NULL CHECK (outstanding_balance BETWEEN 0 AND total_amount),
	lead_source         TEXT,
	created_at          TEXT NOT NULL,
	updated_at          TEXT NOT NULL,
	UNIQUE (business_id, job_number)
) STRICT;

CREATE INDEX jobs_newest ON jobs (business_id, created_at DESC, id DESC);
CREATE INDEX jobs_by_status ON jobs (business_id, work_status, created_at DESC, id DESC);
CREATE INDEX jobs_of_contact ON jobs (contact_id);

CREATE TABLE estimates (
	id               TEXT PRIMARY KEY,
	business_id      TEXT NOT NULL REFERENCES businesses (id),
	contact_id       INTEGER NOT NULL REFERENCES contacts (id),
	job_id           TEXT REFERENCES jobs (id),
	estimate_number  TEXT NOT NULL,
	title            TEXT NOT NULL,
	status           TEXT NOT NULL CHECK (status IN ('draft', 'sent', 'approved', 'declined', 'expired')),
	payment_status   TEXT NOT NULL CHECK (payment_status IN ('unpaid', 'partial', 'paid')),
	subtotal         INTEGER NOT NULL,
	discount_type    TEXT CHECK (discount_type IN ('percentage', 'fixed')),
	discount_value   INTEGER,
	discount_amount  INTEGER NOT NULL DEFAULT 0,
	tax_rate         INTEGER NOT NULL,
	tax_amount       INTEGER NOT NULL,
	total_amount     INTEGER NOT NULL,
	deposit_required INTEGER NOT NULL CHECK (deposit_required IN (0, 1)),
	deposit_amount   INTEGER,
	amount_paid      INTEGER NOT NULL,
	expires_at       TEXT,
	sent_at          TEXT,
	approved_at      TEXT,
	created_at       TEXT NOT NULL,
	updated_at       TEXT NOT NULL,
	UNIQUE (business_id, estimate_number),
	CHECK (total_amount = subtotal - discount_amount + tax_amount),
	CHECK ((discount_type IS NULL) = (discount_value IS NULL)),
	CHECK (deposit_required = (deposit_amount IS NOT NULL)),
	CHECK (amount_paid BETWEEN 0 AND total_amount)
) STRICT;

CREATE INDEX estimates_newest ON estimates (business_id, created_at DESC, id DESC);
CREATE INDEX estimates_by_status ON estimates (business_id, status, created_at DESC, id DESC);
CREATE INDEX estimates_by_payment ON estimates (business_id, payment_status, created_at DESC, id DESC);
CREATE INDEX estimates_of_contact ON estimates (contact_id);
CREATE INDEX estimates_of_job ON estimates (job_id);

CREATE TABLE invoices (
	id              TEXT PRIMARY KEY,
	business_id     TEXT NOT NULL REFERENCES businesses (id),
	contact_id      INTEGER NOT NULL REFERENCES contacts (id),
	job_id          TEXT REFERENCES jobs (id),
	invoice_number  TEXT NOT NULL,
	title           TEXT NOT NULL,
	status          TEXT NOT NULL CHECK (status IN ('draft', 'sent', 'viewed', 'paid', 'overdue', 'voided')),
	subtotal        INTEGER NOT NULL,
	discount_type   TEXT CHECK (discount_type IN ('percentage', 'fixed')),
	discount_value  INTEGER,
	discount_amount INTEGER NOT NULL DEFAULT 0,
	tax_rate        INTEGER NOT NULL,
	tax_amount      INTEGER NOT NULL,
	total_amount    INTEGER NOT NULL,
	paid_amount     INTEGER NOT NULL,
	due_at          TEXT,
	issued_at       TEXT,
	sent_at         TEXT,
	paid_at         TEXT,
	created_at      TEXT NOT NULL,
	updated_at      TEXT NOT NULL,
	UNIQUE (business_id, invoice_number),
	CHECK (total_amount = subtotal - discount_amount + tax_amount),
	CHECK ((discount_type IS NULL) = (discount_value IS NULL)),
	CHECK (paid_amount BETWEEN 0 AND total_amount),
	CHECK ((status = 'paid') = (paid_at IS NOT NULL))
) STRICT;

CREATE INDEX invoices_newest ON invoices (business_id, created_at DESC, id DESC);
CREATE INDEX invoices_by_status ON invoices (business_id, status, created_at DESC, id DESC);
CREATE INDEX invoices_of_contact ON invoices (contact_id);
CREATE INDEX invoices_of_job ON invoices (job_id);

CREATE TABLE offerings (
	id                    TEXT PRIMARY KEY,
	business_id           TEXT NOT NULL REFERENCES businesses (id),
	name                  TEXT NOT NULL,
	type                  TEXT NOT NULL CHECK (type IN ('service', 'product')),
	status                TEXT NOT NULL CHECK (status IN ('active', 'inactive')),
	description           TEXT,
	service_details       TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(service_details)),
	dont_book_appointment INTEGER NOT NULL CHECK (dont_book_appointment IN (0, 1)),
	appointment_duration  INTEGER CHECK (appointment_duration > 0),
	created_at            TEXT NOT NULL,
	updated_at            TEXT NOT NULL
) STRICT;

CREATE INDEX offerings_newest ON offerings (business_id, created_at DESC, id DESC);
CREATE INDEX offerings_by_status ON offerings (business_id, status, created_at DESC, id DESC);

CREATE TABLE equipment (
	id                        TEXT PRIMARY KEY,
	business_id               TEXT NOT NULL REFERENCES businesses (id),
	equipment_number          TEXT NOT NULL,
	name                      TEXT NOT NULL,
	serial_number             TEXT,
	tracking_mode             TEXT NOT NULL CHECK (tracking_mode IN ('individual', 'bulk')),
	quantity                  INTEGER NOT NULL CHECK (quantity >= 0),
	category                  TEXT NOT NULL,
	model                     TEXT,
	manufacturer              TEXT,
	status                    TEXT NOT NULL CHECK (status IN ('available', 'assigned', 'maintenance', 'retired')),
	purchase_date             TEXT,
	maintenance_interval_days INTEGER CHECK (maintenance_interval_days > 0),
	next_maintenance_date     TEXT,
	created_at                TEXT NOT NULL,
	updated_at                TEXT NOT NULL,
	UNIQUE (business_id, equipment_number)
) STRICT;

CREATE INDEX equipment_newest ON equipment (business_id, created_at DESC, id DESC);
CREATE INDEX equipment_by_status ON equipment (business_id, status, created_at DESC, id DESC);
CREATE INDEX equipment_by_category ON equipment (business_id, category, created_at DESC, id DESC);

CREATE TABLE events (
	id            TEXT PRIMARY KEY,
	business_id   TEXT NOT NULL REFERENCES businesses (id),
	status        TEXT NOT NULL CHECK (status IN ('draft', 'published', 'archived')),
	title         TEXT NOT NULL,
	description   TEXT,
	url           TEXT NOT NULL,
	type          TEXT NOT NULL CHECK (type IN ('single-day', 'multi-day', 'recurring')),
	location_type TEXT NOT NULL CHECK (location_type IN ('in-person', 'virtual', 'hybrid')),
	venue         TEXT,
	address       TEXT,
	virtual_link  TEXT,
	is_free       INTEGER NOT NULL CHECK (is_free IN (0, 1)),
	image_url     TEXT,
	published_at  TEXT,
	created_at    TEXT NOT NULL,
	updated_at    TEXT NOT NULL,
	CHECK (status <> 'published' OR published_at IS NOT NULL),
	CHECK (status <> 'draft' OR published_at IS NULL)
) STRICT;

CREATE INDEX events_newest ON events (business_id, published_at DESC, created_at DESC, id DESC);
CREATE INDEX events_by_status ON events (business_id, status, published_at DESC, created_at DESC, id DESC);

CREATE TABLE event_sessions (
	event_id   TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
	position   INTEGER NOT NULL,
	date       TEXT NOT NULL,
	start_time TEXT NOT NULL,
	end_time   TEXT NOT NULL,
	PRIMARY KEY (event_id, position),
	CHECK (start_time < end_time)
) STRICT, WITHOUT ROWID;

CREATE TABLE event_media (
	event_id  TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
	position  INTEGER NOT NULL,
	url       TEXT NOT NULL,
	file_type TEXT NOT NULL CHECK (file_type IN ('image', 'video', 'document')),
	caption   TEXT,
	featured  INTEGER NOT NULL CHECK (featured IN (0, 1)),
	PRIMARY KEY (event_id, position)
) STRICT, WITHOUT ROWID;
