package credentials

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// Reasons of the condition CredentialsValid.
const (
	NoEnd         = "NoEnd"
	Valid         = "Valid"
	ExpiresSoon   = "ExpiresSoon"
	RenewalFailed = "RenewalFailed"
	Expired       = "Expired"
)

// renew is how the user gets new credentials.
const renew = "run kubectl lodestone peer --renew, or put new ones into the Secret"

// Condition returns the condition CredentialsValid at now. failure is why the
// last attempt to renew them failed, empty if it did not.
func (c Credentials) Condition(now time.Time, failure string) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.CredentialsValid, Status: status, Reason: reason, Message: message}
	}
	until := c.Until.Format(time.RFC3339)
	switch {
	case c.Kind == Endless:
		return is(metav1.ConditionTrue, NoEnd, "the credentials of the kubeconfig have no end that is known here")
	case !now.Before(c.Until):
		return is(metav1.ConditionFalse, Expired, c.Ended(now))
	case failure != "":
		return is(metav1.ConditionTrue, RenewalFailed, fmt.Sprintf("the %s is valid until %s only, for it cannot be renewed: %s; %s before then", c.Kind, until, failure, renew))
	case c.Kind == Token:
		return is(metav1.ConditionTrue, Valid, fmt.Sprintf("the token is valid until %s; it is renewed at %s", until, c.RenewAt().Format(time.RFC3339)))
	case !now.Before(c.RenewAt()):
		return is(metav1.ConditionTrue, ExpiresSoon, fmt.Sprintf("the client certificate is valid until %s only: %s before then", until, renew))
	}
	return is(metav1.ConditionTrue, Valid, fmt.Sprintf("the client certificate is valid until %s", until))
}

// Ended is one sentence on credentials that have ended at now; empty if they
// have not.
func (c Credentials) Ended(now time.Time) string {
	if c.Kind == Endless || now.Before(c.Until) {
		return ""
	}
	return fmt.Sprintf("the %s of the kubeconfig expired at %s: %s", c.Kind, c.Until.Format(time.RFC3339), renew)
}
