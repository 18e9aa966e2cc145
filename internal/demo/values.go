package demo

import (
	"fmt"
	"strconv"
	"time"
)

// decimal is a number of hundredths: 947188 is "9471.88". Amounts of money, tax
// rates and discounts are kept in it, and leave the service as decimal strings.
type decimal int64

// String gives d with exactly two decimals.
func (d decimal) String() string { return string(d.append(nil)) }

func (d decimal) append(b []byte) []byte {
	if d < 0 {
		b = append(b, '-')
		d = -d
	}
	b = strconv.AppendInt(b, int64(d/100), 10)
	cents := d % 100
	return append(b, '.', byte('0'+cents/10), byte('0'+cents%10))
}

// Scan reads the integer that the schema keeps for a decimal. It implements
// sql.Scanner.
func (d *decimal) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("scanning %T as a decimal", src)
	}
	*d = decimal(n)
	return nil
}

// instant writes t as the schema keeps instants: RFC 3339 in UTC to the second,
// which sorts as text in the order of time.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// at is an instant that a record may lack.
func at(t time.Time) *string { return new(instant(t)) }

const day = 24 * time.Hour

// nullable scans a column that may be NULL into a pointer, which is nil then.
// database/sql would do it too, by reflection, which is felt on a page of records.
type nullable[T any] struct{ to **T }

// Scan implements sql.Scanner.
func (n nullable[T]) Scan(src any) error {
	if src == nil {
		*n.to = nil
		return nil
	}
	v, ok := src.(T)
	if !ok {
		return fmt.Errorf("scanning %T as %T", src, v)
	}
	*n.to = &v
	return nil
}

// nullableDecimal is nullable for a decimal, which is an integer in the database.
type nullableDecimal struct{ to **decimal }

// Scan implements sql.Scanner.
func (n nullableDecimal) Scan(src any) error {
	if src == nil {
		*n.to = nil
		return nil
	}
	d := new(decimal)
	if err := d.Scan(src); err != nil {
		return err
	}
	*n.to = d
	return nil
}
