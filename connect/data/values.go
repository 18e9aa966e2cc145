package data

import "reflect"

// Enumerations; see [Enumerations] for their values.
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

// Enumerations returns the values of each enumeration, which are strings, by its type.
func Enumerations() map[reflect.Type][]any {
	return map[reflect.Type][]any{
		reflect.TypeFor[Day]():                 {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"},
		reflect.TypeFor[AreaKind]():            {"city", "postal_code", "region"},
		reflect.TypeFor[ContactType]():         {"customer", "lead", "vendor"},
		reflect.TypeFor[ContactStatus]():       {"active", "inactive"},
		reflect.TypeFor[Channel]():             {"call", "sms", "chat", "email"},
		reflect.TypeFor[ConversationOutcome](): {"answered", "appointment_booked", "message_taken", "transferred", "abandoned"},
		reflect.TypeFor[Speaker]():             {"caller", "receptionist", "staff"},
		reflect.TypeFor[AppointmentStatus]():   {"scheduled", "confirmed", "completed", "cancelled", "no_show"},
		reflect.TypeFor[BookedBy]():            {"receptionist", "staff", "online"},
		reflect.TypeFor[Tone]():                {"friendly", "professional", "formal", "warm", "playful"},
		reflect.TypeFor[InvoiceStatus]():       {"draft", "sent", "viewed", "paid", "overdue", "voided"},
		reflect.TypeFor[EstimateStatus]():      {"draft", "sent", "approved", "declined", "expired"},
		reflect.TypeFor[PaymentStatus]():       {"unpaid", "partial", "paid"},
		reflect.TypeFor[JobStatus]():           {"draft", "sent", "scheduled", "in_progress", "completed", "cancelled"},
		reflect.TypeFor[RunStatus]():           {"queued", "running", string(RunSucceeded), string(RunFailed)},
		reflect.TypeFor[StepStatus]():          {"pending", "running", "succeeded", "failed", "skipped"},
	}
}
