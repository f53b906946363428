// Package certificates makes and renews what kube-scheduler and the extender know
// each other by: an authority, the extender's certificate and kube-scheduler's.
//
// They are in three Secrets, which exist before, empty: so nobody needs the right
// to create Secrets. Whoever asks for a certificate trusts the bundle ca.crt. An
// authority that gets old is joined in the bundle by the next one long before that
// signs anything, and stays in it until it expires:
//
//	life of the authority   0 ......... 2/3 ........ 5/6 ......... 1
//	signs                   this one               | the next one
//	in the bundle           this one   | both                      | the next one
//
// Everything may be run at any time, also twice at once.
package certificates
