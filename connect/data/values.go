package data

// Enumerations. Package mcp has their values in its schemas.
type (
	// Day is a day of the week.
	Day string
	// AreaKind is what a service area is.
	AreaKind string
	// ContactType is what a contact is to the business.
	ContactType string
	// ContactStatus is whether the business still deals with a contact.
	ContactStatus string
	// Channel is how a conversation was held.
	Channel string
	// ConversationOutcome is how a conversation ended.
	ConversationOutcome string
	// Speaker is who said something.
	Speaker string
	// AppointmentStatus is the state of an appointment.
	AppointmentStatus string
	// BookedBy is who made an appointment.
	BookedBy string
	// Tone is how the receptionist speaks.
	Tone string
	// InvoiceStatus is the state of an invoice.
	InvoiceStatus string
	// EstimateStatus is the state of an estimate.
	EstimateStatus string
	// PaymentStatus is how much of an estimate is paid.
	PaymentStatus string
	// JobStatus is the state of a piece of work.
	JobStatus string
	// RunStatus is the state of a run.
	RunStatus string
	// StepStatus is the state of a step.
	StepStatus string
)
