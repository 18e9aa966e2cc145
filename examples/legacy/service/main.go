// Command service is the billing system of docs/legacy.md, as it was written in 2009 and has run since: invoices, customers and payments of
// two accounts, in memory. It knows nothing of gateways. Whoever reaches it may have any account.
//
//	service -listen localhost:8081
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	listen := flag.String("listen", "localhost:8081", "address to serve on")
	flag.Parse()
	server := &http.Server{Addr: *listen, Handler: handler(os.Getenv("BILLING_PASSWORD")), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// The rows, as they are in the database.
type (
	invoice struct {
		No      string `json:"INVOICE_NO"` // seven digits
		CustNo  int    `json:"CUST_NO"`
		CustNm  string `json:"CUST_NM"`
		Amt     string `json:"AMT_CENTS"` // nine digits
		Created int64  `json:"CREATED"`
		Due     int64  `json:"DUE"`
		St      int    `json:"ST"`     // 1 open, 2 paid, 9 cancelled
		Dunned  string `json:"DUNNED"` // Y or N
		Doc     string `json:"DOC"`
		Margin  int    `json:"MARGIN_CENTS"`
		Lines   []line `json:"Lines"`
	}
	line struct {
		Art   string `json:"ART_NO"`
		Qty   string `json:"QTY"`
		Price int    `json:"PRICE_CENTS"`
	}
	customer struct {
		No      int    `json:"CUST_NO"`
		Nm      string `json:"CUST_NM"`
		Kind    int    `json:"KIND"` // 1 person, 2 company
		Street  string `json:"STREET"`
		Zip     string `json:"ZIP"`
		City    string `json:"CITY"`
		Contact struct {
			Mail string  `json:"MAIL"`
			Tel  *string `json:"TEL"`
		} `json:"Contact"`
		Limit  int    `json:"CREDIT_CENTS"`
		Since  int64  `json:"SINCE"`
		Rating string `json:"RATING"`
	}
	payment struct {
		No   string `json:"PAY_NO"`
		Amt  int    `json:"AMT_CENTS"`
		Meth int    `json:"METH"` // 1 transfer, 2 card
		Paid int64  `json:"PAID"`
		Ref  string `json:"REF"` // once in an account
	}
	account struct {
		invoices  []*invoice // the newest last, as all rows
		customers []customer
		payments  []payment
	}
)

type billing struct {
	mu       sync.Mutex
	accounts map[string]*account
	next     int // number of a new row
}

func handler(password string) http.Handler {
	s := newBilling()
	mux := http.NewServeMux()
	for pattern, do := range map[string]func(*account, *http.Request) any{
		"GET /v2/accounts/{acct}/InvoiceList":           s.invoiceList,
		"GET /v2/accounts/{acct}/Invoice/{no}":          s.invoice,
		"POST /v2/accounts/{acct}/Invoice/{no}/Payment": s.payment,
		"GET /v2/accounts/{acct}/CustomerList":          s.customerList,
		"GET /v2/accounts/{acct}/Customer/{no}":         s.customer,
		"POST /v2/accounts/{acct}/Customer":             s.newCustomer,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			if password != "" && r.Header.Get("X-Billing-Password") != password {
				_, _ = fmt.Fprintln(w, "<html><body><h1>Access denied</h1></body></html>")
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			acct := r.PathValue("acct")
			if other := r.FormValue("ACCT"); other != "" {
				acct = other // for the back office
			}
			rows := s.accounts[acct]
			if rows == nil {
				_ = json.NewEncoder(w).Encode(failure("40", "NO ACCOUNT"))
				return
			}
			answer := do(rows, r)
			if file, ok := answer.([]byte); ok {
				w.Header().Set("Content-Type", "application/pdf")
				_, _ = w.Write(file)
				return
			}
			_ = json.NewEncoder(w).Encode(answer)
		})
	}
	return mux
}

// Every response has the status 200.
func failure(code, text string) any {
	return map[string]any{"Error": map[string]string{"Code": code, "Text": text}}
}

func one(row any) any { return map[string]any{"Result": map[string]any{"Row": row}} }

// list returns a part of the rows, the newest first.
func list[T any](r *http.Request, rows []T) any {
	offset, _ := strconv.Atoi(r.FormValue("offset"))
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	part := []T{}
	for i := len(rows) - 1 - max(offset, 0); i >= 0 && len(part) < limit; i-- {
		part = append(part, rows[i])
	}
	return map[string]any{"Result": map[string]any{"Rows": part, "Total": strconv.Itoa(len(rows))}}
}

func (s *billing) invoiceList(a *account, r *http.Request) any {
	if r.FormValue("st") == "" {
		return list(r, a.invoices)
	}
	st, _ := strconv.Atoi(r.FormValue("st"))
	return list(r, slices.DeleteFunc(slices.Clone(a.invoices), func(i *invoice) bool { return i.St != st }))
}

// find returns the invoice of a path such as 0000003.json, or nil.
func find(a *account, file string) (*invoice, string) {
	no, form, _ := strings.Cut(file, ".")
	if i := slices.IndexFunc(a.invoices, func(i *invoice) bool { return i.No == no }); i >= 0 {
		return a.invoices[i], form
	}
	return nil, form
}

func (s *billing) invoice(a *account, r *http.Request) any {
	found, form := find(a, r.PathValue("no"))
	switch {
	case found == nil:
		return failure("44", "NO INVOICE")
	case form == "pdf":
		return []byte("%PDF-1.4\n% Invoice " + found.No + "\n")
	default:
		return one(found)
	}
}

// payment pays an invoice.
func (s *billing) payment(a *account, r *http.Request) any {
	paid := struct {
		payment

		Acct string `json:"ACCT"` // for the back office
	}{}
	if err := json.NewDecoder(r.Body).Decode(&paid); err != nil {
		return failure("10", "BAD DATA")
	}
	if other := s.accounts[paid.Acct]; other != nil {
		a = other
	}
	i, _ := find(a, r.PathValue("no"))
	switch {
	case i == nil:
		return failure("44", "NO INVOICE")
	case slices.ContainsFunc(a.payments, func(p payment) bool { return p.Ref == paid.Ref }):
		return failure("48", "DUP REF")
	}
	s.next++
	paid.No = fmt.Sprintf("%07d", s.next)
	a.payments = append(a.payments, paid.payment)
	if cents, _ := strconv.Atoi(i.Amt); paid.Amt >= cents {
		i.St = 2
	}
	return one(paid.payment)
}

func (s *billing) customerList(a *account, r *http.Request) any { return list(r, a.customers) }

func (s *billing) customer(a *account, r *http.Request) any {
	no, _, _ := strings.Cut(r.PathValue("no"), ".")
	for _, c := range a.customers {
		if strconv.Itoa(c.No) == no {
			return one(c)
		}
	}
	return failure("44", "NO CUSTOMER")
}

func (s *billing) newCustomer(a *account, r *http.Request) any {
	s.next++
	c := customer{Rating: "C"}
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		return failure("10", "BAD DATA")
	}
	c.No, c.Since = s.next, time.Now().Unix()
	a.customers = append(a.customers, c)
	return one(c)
}

func newBilling() *billing {
	s := &billing{accounts: map[string]*account{"17": {}, "18": {}}, next: 20}
	for n, name := range []string{"Ines", "Ravi", "Corner Shop", "Maud", "Otto", "Harbour Books"} {
		c := customer{No: n + 1, Nm: name, Kind: 1 + n%3/2, Street: "Quay 3", Zip: "01067", City: "Dresden", Limit: 50000, Since: 1230768000 + 86400*int64(n), Rating: "B"}
		c.Contact.Mail = strings.ToLower(strings.ReplaceAll(name, " ", ".")) + "@example.com"
		a := s.accounts[strconv.Itoa(17+n/3)]
		a.customers = append(a.customers, c)
	}
	for no := range 12 { // of the accounts in turn
		acct := strconv.Itoa(17 + no%2)
		who, day := s.accounts[acct].customers[no/2%3], 86400*int64(no)
		i := &invoice{
			No: fmt.Sprintf("%07d", no+1), CustNo: who.No, CustNm: who.Nm, Amt: fmt.Sprintf("%09d", 1990*(no+1)), Created: 1741080600 + day,
			Due: 1743465600 + day, St: []int{2, 1, 9, 1}[no/2%4], Dunned: []string{"N", "Y"}[no/2%2], Margin: 700,
			Lines: []line{{"A-1", strconv.Itoa(no + 1), 1990}},
		}
		i.Doc = "http://billing1.corp.example:8010/v2/accounts/" + acct + "/Invoice/" + i.No + ".pdf"
		s.accounts[acct].invoices = append(s.accounts[acct].invoices, i)
	}
	return s
}
