// Package credentials says how long a kubeconfig's token or certificate lasts,
// when to renew it, and what to tell the user. It is pure and verifies nothing:
// the API server that the credentials are for does.
package credentials

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kind is what a kubeconfig logs in with.
type Kind string

// Kinds.
const (
	// Token is a service account's token with an end: it can be renewed.
	Token Kind = "token"
	// Certificate is a client certificate.
	Certificate Kind = "client certificate"
	// Endless is anything of which no end is known.
	Endless Kind = "credentials"
)

// Credentials are what a kubeconfig logs in with.
type Credentials struct {
	Kind Kind
	// Namespace and Account are the service account of a Token.
	Namespace, Account string
	// From and Until are the life of a Token or Certificate.
	From, Until time.Time
}

// Of returns the credentials of the current context of a kubeconfig. What cannot
// be read is Endless.
func Of(kubeconfig []byte) Credentials {
	_, user, err := load(kubeconfig)
	if err != nil {
		return Credentials{Kind: Endless}
	}
	if user.Token != "" {
		return ofToken(user.Token)
	}
	return ofCertificate(user.ClientCertificateData)
}

func ofToken(token string) Credentials {
	none := Credentials{Kind: Endless}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return none
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return none
	}
	// The times may be fractions.
	var claims struct {
		Subject string  `json:"sub"`
		From    float64 `json:"iat"`
		Until   float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return none
	}
	subject := strings.Split(claims.Subject, ":")
	if len(subject) != 4 || subject[0] != "system" || subject[1] != "serviceaccount" || claims.From <= 0 || claims.Until <= claims.From {
		return none
	}
	return Credentials{Kind: Token, Namespace: subject[2], Account: subject[3], From: time.Unix(int64(claims.From), 0).UTC(), Until: time.Unix(int64(claims.Until), 0).UTC()}
}

func ofCertificate(data []byte) Credentials {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		// The first one is the client's own; those of its issuers follow.
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			break
		}
		return Credentials{Kind: Certificate, From: certificate.NotBefore.UTC(), Until: certificate.NotAfter.UTC()}
	}
	return Credentials{Kind: Endless}
}

// RenewAt is when a fifth of the life of the credentials is left; zero if they
// have no known end.
func (c Credentials) RenewAt() time.Time {
	if c.Kind == Endless {
		return time.Time{}
	}
	return c.Until.Add(-c.Until.Sub(c.From) / 5)
}

// Due says whether to ask for another token at now.
func (c Credentials) Due(now time.Time) bool {
	return c.Kind == Token && !now.Before(c.RenewAt())
}

// Succeeds returns an error unless the token of a kubeconfig is one of the same
// account as c that ends later.
func (c Credentials) Succeeds(token string) error {
	next := ofToken(token)
	switch {
	case next.Kind != Token || next.Namespace != c.Namespace || next.Account != c.Account:
		return errors.New("the answer holds no token of the same account")
	case !next.Until.After(c.Until):
		return fmt.Errorf("the new token would end at %s, no later than this one", next.Until.Format(time.RFC3339))
	}
	return nil
}

// WithToken returns the kubeconfig with another token of its current user.
func WithToken(kubeconfig []byte, token string) ([]byte, error) {
	config, user, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}
	user.Token = token
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return data, nil
}

func load(kubeconfig []byte) (*clientcmdapi.Config, *clientcmdapi.AuthInfo, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.AuthInfos[current.AuthInfo] == nil {
		return nil, nil, errors.New("read kubeconfig: its current context names no user")
	}
	return config, config.AuthInfos[current.AuthInfo], nil
}
