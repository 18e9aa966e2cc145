package demo

import (
	"fmt"
	"strconv"
	"time"
)

// decimal is a number of hundredths: 947188 is "9471.88". Money, tax rates and discounts are stored as integers and
// sent as decimal strings.
type decimal int64

// String returns d with two decimals.
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

// Scan implements sql.Scanner.
func (d *decimal) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("scanning %T as a decimal", src)
	}
	*d = decimal(n)
	return nil
}

// instant formats t as the database stores times: RFC 3339 in UTC to the second, which sorts by time.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// at returns a time for a column that may be NULL.
func at(t time.Time) *string { return new(instant(t)) }

const day = 24 * time.Hour

// nullable scans a column that may be NULL. database/sql does so by reflection, which is noticeably slower.
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

// nullableDecimal is nullable for a decimal.
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
