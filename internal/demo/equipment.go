package demo

type equipment struct {
	ID                      string
	BusinessID              string
	Number                  string
	Name                    string
	SerialNumber            *string
	TrackingMode            string // "individual": one piece with a serial number; "bulk": a quantity
	Quantity                int64
	Category                string
	Model                   *string
	Manufacturer            *string
	Status                  string
	PurchaseDate            *string
	MaintenanceIntervalDays *int64 // nil: not maintained by the calendar
	NextMaintenanceDate     *string
	CreatedAt               string
	UpdatedAt               string
}

func equipmentFields() []field[equipment] {
	type r = equipment
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		text("equipment_number", func(r *r) *string { return &r.Number }),
		text("name", func(r *r) *string { return &r.Name }),
		optText("serial_number", func(r *r) **string { return &r.SerialNumber }),
		text("tracking_mode", func(r *r) *string { return &r.TrackingMode }),
		integer("quantity", func(r *r) *int64 { return &r.Quantity }),
		text("category", func(r *r) *string { return &r.Category }),
		optText("model", func(r *r) **string { return &r.Model }),
		optText("manufacturer", func(r *r) **string { return &r.Manufacturer }),
		text("status", func(r *r) *string { return &r.Status }),
		optText("purchase_date", func(r *r) **string { return &r.PurchaseDate }),
		optInteger("maintenance_interval_days", func(r *r) **int64 { return &r.MaintenanceIntervalDays }),
		optText("next_maintenance_date", func(r *r) **string { return &r.NextMaintenanceDate }),
		text("created_at", func(r *r) *string { return &r.CreatedAt }),
		text("updated_at", func(r *r) *string { return &r.UpdatedAt }),
	}
}
