package demo

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a minimal image has no time zone files

	"github.com/go-json-experiment/json"
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
			files, err := seedFiles.ReadDir("seed/" + folder)
			if err != nil {
				return err
			}
			for _, file := range files {
				text, err := seedFiles.ReadFile(path.Join("seed", folder, file.Name()))
				if err == nil {
					err = insertSeed(ctx, tx, strings.TrimSuffix(file.Name(), ".json"), b.ID, resolveTimes(string(text), now.In(zone)))
				}
				if err != nil {
					return fmt.Errorf("inserting seed/%s/%s: %w", folder, file.Name(), err)
				}
			}
		}
		return nil
	})
}

// insertSeed inserts the records of a JSON file into their table. A member that is missing is NULL, a list or an object is
// stored as JSON.
func insertSeed(ctx context.Context, tx *sql.Tx, table, businessID, records string) error {
	members, err := rowsOf(ctx, tx, func(name *string) []any { return []any{name} }, "SELECT DISTINCT member.key"+
		" FROM json_each(?) record, json_each(record.value) member WHERE member.key <> 'business_id'", records)
	if err != nil {
		return err
	}
	var columns, values []string
	args := []any{records}
	for _, name := range members {
		column, value := name, "value ->> '"+name+"'"
		if name == "password" {
			column, value = "password_hash", "hash_password("+value+")"
		}
		columns, values = append(columns, column), append(values, value)
	}
	if table != "businesses" {
		columns, values, args = append(columns, "business_id"), append(values, "?2"), append(args, businessID)
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") SELECT "+strings.Join(values, ", ")+
		" FROM json_each(?1)", args...)
	return err
}

// resolveTimes resolves the times in a JSON text.
func resolveTimes(text string, today time.Time) string {
	parts := strings.Split(text, `"`)
	for i, part := range parts {
		if strings.HasPrefix(part, "-") || strings.HasPrefix(part, "+") {
			parts[i] = resolveTime(part, today)
		}
	}
	return strings.Join(parts, `"`)
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
