package demo

import (
	"context"
	"database/sql"
	"embed"
	"encoding/csv"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a minimal image has no time zone files

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// seedFiles are the records of a new database: a folder for each business, and in it a file for each table, which
// seed/README.md describes.
//
//go:embed seed
var seedFiles embed.FS

// seedFolders gives the folders of seed/ in the order of Businesses.
func seedFolders() []string { return []string{"fernhollow", "kestrelrow", "saltbush"} }

// Businesses returns the businesses that a new database is filled with: two active ones, then an inactive one.
func Businesses() []Business {
	var all []Business
	for _, folder := range seedFolders() {
		all = append(all, decodeSeed[Business](folder, "businesses")...)
	}
	return all
}

// Accounts returns the accounts that a new database is filled with: an owner and a member for each business, in the
// order of Businesses.
func Accounts() []Account {
	var all []Account
	for i, b := range Businesses() {
		for _, a := range decodeSeed[Account](seedFolders()[i], "accounts") {
			a.BusinessID = b.ID
			all = append(all, a)
		}
	}
	return all
}

// decodeSeed reads a JSON file of seed/. It panics if the file is missing or invalid: the files are part of the program.
func decodeSeed[T any](folder, table string) (records []T) {
	text, err := seedFiles.ReadFile(path.Join("seed", folder, table+".json"))
	if err == nil {
		err = json.Unmarshal(text, &records)
	}
	if err != nil {
		panic(fmt.Sprintf("reading seed/%s/%s.json: %v", folder, table, err))
	}
	return records
}

// resourceTables are the tables of the public API's records. Tables come after those that they refer to.
func resourceTables() []string {
	return []string{
		"businesses", "contacts", "jobs", "estimates", "invoices", "offerings", "equipment", "events", "event_sessions", "event_media",
	}
}

// connectTables are the tables that only /connect/v1 uses.
func connectTables() []string {
	return []string{
		"accounts", "documents", "receptionist_faqs", "receptionist_services", "calendars", "appointments", "conversations",
		"messages", "automations", "object_types", "objects",
	}
}

// seed fills a database that has no businesses with the records of the given folders, and gives those of the businesses
// that have no accounts yet, as in a database of schema version 1, the records of connectTables. hash hashes passwords.
func seed(ctx context.Context, st *store, now time.Time, hash func(string) string, folders ...string) error {
	return st.write(ctx, func(tx *sql.Tx) error {
		var empty bool
		if err := tx.QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT 1 FROM businesses)").Scan(&empty); err != nil {
			return err
		}
		for _, folder := range folders {
			b := decodeSeed[Business](folder, "businesses")[0]
			zone, err := time.LoadLocation(b.TimeZone)
			if err != nil {
				return fmt.Errorf("reading seed/%s: %w", folder, err)
			}
			s := &seeder{tx: tx, folder: folder, businessID: b.ID, today: now.In(zone), hash: hash}
			if empty {
				if err := s.insert(ctx, resourceTables()); err != nil {
					return err
				}
			}
			var lacksAccounts bool
			if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM businesses WHERE id = ?1)"+
				" AND NOT EXISTS (SELECT 1 FROM accounts WHERE business_id = ?1)", b.ID).Scan(&lacksAccounts); err != nil {
				return err
			}
			if lacksAccounts {
				if err := s.insert(ctx, connectTables()); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// seeder inserts the records of one business.
type seeder struct {
	tx         *sql.Tx
	folder     string
	businessID string
	today      time.Time // in the business's time zone
	hash       func(string) string
}

// seedRow is a record of a seed file by column. A column that is missing is NULL.
type seedRow map[string]any

func (s *seeder) insert(ctx context.Context, tables []string) error {
	for _, table := range tables {
		rows, err := s.read(table)
		if err != nil {
			return fmt.Errorf("reading seed/%s/%s: %w", s.folder, table, err)
		}
		if err := s.insertRows(ctx, table, rows); err != nil {
			return fmt.Errorf("inserting seed/%s/%s: %w", s.folder, table, err)
		}
	}
	return nil
}

func (s *seeder) insertRows(ctx context.Context, table string, rows []seedRow) error {
	used := seedRow{}
	for _, row := range rows {
		maps.Copy(used, row)
	}
	names := slices.Sorted(maps.Keys(used))
	places := make([]string, len(names))
	for i, name := range names {
		places[i] = "?"
		if name == "contact_id" && slices.Contains(connectTables(), table) {
			// A database of version 1 may have other contacts.
			places[i] = "(SELECT id FROM contacts WHERE id = ?)"
		}
	}
	stmt, err := s.tx.PrepareContext(ctx,
		"INSERT INTO "+table+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(places, ", ")+")")
	if err != nil {
		return err
	}
	defer stmt.Close()
	values := make([]any, len(names))
	for _, row := range rows {
		for i, name := range names {
			values[i] = row[name]
		}
		if _, err := stmt.ExecContext(ctx, values...); err != nil {
			return err
		}
	}
	return nil
}

// read returns the rows of a table as they are inserted.
func (s *seeder) read(table string) (rows []seedRow, err error) {
	if text, readErr := seedFiles.ReadFile(path.Join("seed", s.folder, table+".csv")); readErr == nil {
		rows, err = parseCSV(string(text))
	} else {
		rows, err = parseJSON(decodeSeed[map[string]jsontext.Value](s.folder, table))
	}
	for _, row := range rows {
		for name, v := range row {
			if text, ok := v.(string); ok {
				row[name] = resolveTime(text, s.today)
			}
		}
		s.derive(table, row)
	}
	return rows, err
}

// derive adds the columns that follow from others.
func (s *seeder) derive(table string, row seedRow) {
	text := func(column string) string { return fmt.Sprint(row[column]) }
	switch table {
	case "businesses", "event_sessions", "event_media", "messages":
	default:
		row["business_id"] = s.businessID
	}
	switch table {
	case "accounts":
		row["email_key"] = fold(text("email"))
		row["password_hash"] = s.hash(text("password"))
		delete(row, "password")
	case "receptionist_faqs":
		row["lookup_key"] = foldedKey(text("question"))
	case "receptionist_services":
		row["lookup_key"] = foldedKey(text("name"))
	case "objects":
		row["search_text"] = searchText(text("fields"))
	}
}

// parseCSV reads rows below a line of column names. An empty cell is NULL.
func parseCSV(text string) ([]seedRow, error) {
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows []seedRow
	for _, cells := range lines[1:] {
		row := seedRow{}
		for i, cell := range cells {
			if row[lines[0][i]] = nil; cell != "" {
				row[lines[0][i]] = cell
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// parseJSON takes objects and lists as the JSON that is stored, and other members as their values.
func parseJSON(records []map[string]jsontext.Value) ([]seedRow, error) {
	var rows []seedRow
	for _, record := range records {
		row := seedRow{}
		for name, v := range record {
			if kind := v.Kind(); kind == '{' || kind == '[' {
				row[name] = string(compact(v))
				continue
			}
			var scalar any
			if err := json.Unmarshal(v, &scalar); err != nil {
				return nil, err
			}
			row[name] = scalar
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// resolveTime turns "-3d 09:00:00" into the instant at which it was nine o'clock three days before today, and "+7d" into
// the date in a week. Any other text stays as it is.
func resolveTime(text string, today time.Time) string {
	days, clock, found := strings.Cut(text, "d")
	offset, err := strconv.Atoi(days)
	if !found || err != nil {
		return text
	}
	if clock == "" {
		return today.AddDate(0, 0, offset).Format(time.DateOnly)
	}
	at, err := time.Parse(" "+time.TimeOnly, clock)
	if err != nil {
		return text
	}
	return instant(time.Date(today.Year(), today.Month(), today.Day()+offset, at.Hour(), at.Minute(), at.Second(), 0, today.Location()))
}
