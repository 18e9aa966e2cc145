package demo

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
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
func Businesses() []Business { return fromAll[Business]("businesses") }

// Accounts returns the accounts that a new database is filled with: an owner and a member for each of Businesses.
func Accounts() []Account { return fromAll[Account]("accounts") }

func fromAll[T any](table string) (all []T) {
	for _, folder := range seedFolders() {
		all = append(all, decodeSeed[T](folder, table)...)
	}
	return all
}

// decodeSeed reads a JSON file of seed/, with its text changed by edits. It panics if the file is missing or invalid: the files are
// part of the program.
func decodeSeed[T any](folder, table string, edits ...func([]byte) []byte) (records []T) {
	text, err := seedFiles.ReadFile(path.Join("seed", folder, table+".json"))
	for _, edit := range edits {
		text = edit(text)
	}
	if err == nil {
		err = json.Unmarshal(text, &records)
	}
	if err != nil {
		panic(fmt.Sprintf("reading seed/%s/%s.json: %v", folder, table, err))
	}
	return records
}

// seed fills a database that has no businesses with the records of the given folders.
func seed(ctx context.Context, st *store, now time.Time, folders ...string) error {
	return st.write(ctx, func(tx *sql.Tx) error {
		var filled bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM businesses)").Scan(&filled); err != nil || filled {
			return err
		}
		// Tables are filled in the order of their names, and references are checked at the end.
		if _, err := tx.ExecContext(ctx, "PRAGMA defer_foreign_keys = on"); err != nil {
			return err
		}
		for _, folder := range folders {
			b := decodeSeed[Business](folder, "businesses")[0]
			zone, err := time.LoadLocation(b.TimeZone)
			if err != nil {
				return fmt.Errorf("reading seed/%s: %w", folder, err)
			}
			s := &seeder{tx: tx, folder: folder, businessID: b.ID, today: now.In(zone)}
			files, err := seedFiles.ReadDir("seed/" + folder)
			if err != nil {
				return err
			}
			for _, file := range files {
				if err := s.insert(ctx, strings.TrimSuffix(file.Name(), ".json")); err != nil {
					return fmt.Errorf("inserting seed/%s/%s: %w", folder, file.Name(), err)
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
}

// insert inserts the records of a table. A member that is missing is NULL, a list or an object is stored as JSON.
func (s *seeder) insert(ctx context.Context, table string) error {
	rows := s.rows(table)
	used := map[string]jsontext.Value{}
	for _, row := range rows {
		maps.Copy(used, row)
	}
	columns := slices.Sorted(maps.Keys(used))
	stmt, err := s.tx.PrepareContext(ctx, "INSERT INTO "+table+" ("+strings.Join(columns, ", ")+
		") VALUES (? ->> '$'"+strings.Repeat(", ? ->> '$'", len(columns)-1)+")")
	if err != nil {
		return err
	}
	defer stmt.Close()
	args := make([]any, len(columns))
	for _, row := range rows {
		for i, column := range columns {
			args[i] = cmp.Or(string(row[column]), "null")
		}
		if _, err := stmt.ExecContext(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// rows returns the records of a table with their times, and the columns that follow from others.
func (s *seeder) rows(table string) []map[string]jsontext.Value {
	rows := decodeSeed[map[string]jsontext.Value](s.folder, table, func(file []byte) []byte {
		texts := strings.Split(string(file), `"`)
		for i, text := range texts {
			if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
				texts[i] = resolveTime(text, s.today)
			}
		}
		return []byte(strings.Join(texts, `"`))
	})
	for _, row := range rows {
		if table != "businesses" {
			row["business_id"] = quote(s.businessID)
		}
		switch table {
		case "accounts":
			row["email_key"] = quote(fold(unquote(row["email"])))
			row["password_hash"] = quote(hashPassword(unquote(row["password"])))
			delete(row, "password")
		case "receptionist_faqs":
			row["lookup_key"] = quote(foldedKey(unquote(row["question"])))
		case "receptionist_services":
			row["lookup_key"] = quote(foldedKey(unquote(row["name"])))
		}
	}
	return rows
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
