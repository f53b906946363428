// Package mtls lets only those ask whom the administrator named: the verbs are
// served over TLS 1.3, to holders of a certificate of the client CA. Certificate,
// key and CA are files that change while the program runs, as Secret volumes do.
//
// New files hold for the next connection. A connection that was accepted under
// older files is judged again at its next request and closed after it, so that
// an authority that was taken away does not live on in an open connection. Every
// connection is replaced after a while, and so shows the client's latest files.
package mtls
