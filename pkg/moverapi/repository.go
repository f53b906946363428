package moverapi

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Keys of the administrator's Secret, beside those of Variables.
const (
	StoreURLKey       = "url"
	StoreAuthorityKey = "ca.crt"
)

// StoreVariables are the credentials that a Secret may hold, each as the environment variable
// of restic that it becomes.
var StoreVariables = []string{
	"RESTIC_REST_USERNAME", "RESTIC_REST_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION",
}

// Bounds of what a Secret may hold, in bytes: all of it is in the record of each move.
const (
	longestURL       = 1 << 10
	longestValue     = 1 << 10
	longestAuthority = 16 << 10
)

// Repository is an administrator's choice that content travels through an object store or a claim:
// the place below which each claim of each move gets a repository of its own.
type Repository struct {
	// URL is rest:https://… or s3:https://…, without a user or a slash at its end; empty:
	// there is a Claim.
	URL string `json:"url,omitempty"`
	// Claim is the name of a claim that is mounted by both movers.
	Claim string `json:"claim,omitempty"`
	// Credentials are by the names in Variables.
	Credentials map[string]string `json:"credentials,omitempty"`
	// Authority is the certificate authority of the store, in PEM; empty means the system's.
	Authority []byte `json:"authority,omitempty"`
}

// ParseRepository reads an administrator's Secret. The error is one sentence for the user, and
// contains none of the Secret's values.
func ParseRepository(data map[string][]byte) (*Repository, error) {
	r := &Repository{URL: strings.TrimRight(strings.TrimSpace(string(data[StoreURLKey])), "/"), Authority: data[StoreAuthorityKey]}
	if _, err := split(r.URL); err != nil {
		return nil, err
	}
	for key, value := range data {
		switch {
		case key == StoreURLKey || key == StoreAuthorityKey:
		case !slices.Contains(StoreVariables, key):
			return nil, fmt.Errorf("it has the key %q, which is none of %s, %s, %s: remove it", key, StoreURLKey, StoreAuthorityKey,
				strings.Join(StoreVariables, ", "))
		case len(value) > longestValue ||
			strings.ContainsFunc(strings.TrimSpace(string(value)), func(c rune) bool { return c < ' ' || c == 0x7f }):
			return nil, fmt.Errorf("its key %s has more than one line, or is longer than %d bytes", key, longestValue)
		default:
			if r.Credentials == nil {
				r.Credentials = map[string]string{}
			}
			r.Credentials[key] = strings.TrimSpace(string(value))
		}
	}
	switch {
	case len(r.Authority) > longestAuthority:
		return nil, fmt.Errorf("its key %s is longer than %d KiB: leave in it the authority of the store alone", StoreAuthorityKey,
			longestAuthority>>10)
	case len(r.Authority) > 0 && !x509.NewCertPool().AppendCertsFromPEM(r.Authority):
		return nil, fmt.Errorf("its key %s holds no certificate in PEM", StoreAuthorityKey)
	}
	return r, nil
}

var errForm = errors.New("its key url must be rest:https://HOST/PATH or s3:https://HOST/BUCKET, with a user and password in their " +
	"own keys, if any")

// split returns the address in a repository's name.
func split(name string) (*url.URL, error) {
	kind, address, found := strings.Cut(name, ":")
	if !found || kind != "rest" && kind != "s3" || len(name) > longestURL {
		return nil, errForm
	}
	at, err := url.Parse(address)
	switch {
	case err != nil || at.Host == "" || at.Hostname() == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" || at.Opaque != "":
		return nil, errForm
	case at.Scheme != "https":
		return nil, errors.New("its key url must begin with rest:https:// or s3:https://, or others could read its credentials")
	case kind == "s3" && strings.Trim(at.Path, "/") == "":
		return nil, errors.New("its key url names no bucket: s3:https://HOST/BUCKET")
	case strings.Contains(at.Path+"/", "/../") || strings.Contains(at.Path+"/", "/./") ||
		strings.ContainsFunc(at.Path, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return nil, errForm
	}
	return at, nil
}

// Ticket is what the movers of one claim get: their own repository in the store.
type Ticket struct {
	Repository
	// Folder is the directory of the claim that is the repository's; empty: there is a URL.
	Folder string `json:"folder,omitempty"`
	// Password is what everything in the repository is encrypted with.
	Password string `json:"password"`
}

// For returns what the movers of one claim get: a repository with a name and a password of its own.
func (r *Repository) For(name, password string) Ticket {
	own := *r
	if r.Claim != "" {
		return Ticket{Repository: own, Folder: name, Password: password}
	}
	own.URL += "/" + name
	return Ticket{Repository: own, Password: password}
}

// Noun returns the word that messages use for what content travels through: the object store or the
// claim.
func (t Ticket) Noun() string {
	if t.Claim != "" {
		return "claim " + t.Claim
	}
	return "the object store"
}

// named is the form of the name of a repository.
var named = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z-]{0,99}$`)

// Named reports whether a name may be that of a repository in a claim.
func Named(name string) bool { return named.MatchString(name) }

// check returns what is wrong with a ticket.
func (t Ticket) check() error {
	switch {
	case t.Password == "":
		return errors.New("it has no password")
	case t.Claim != "" && (t.URL != "" || !Named(t.Folder)):
		return errors.New("it names a claim and no directory there, or a URL as well")
	case t.Claim != "":
		return nil
	}
	_, err := split(t.URL)
	return err
}

// Address is where the repository is; with Plain for requests without restic.
func (t Ticket) Address() *url.URL {
	at, err := split(t.URL)
	if err != nil {
		return &url.URL{}
	}
	return at
}

// Plain says whether the store speaks the protocol of restic's REST server.
func (t Ticket) Plain() bool { return strings.HasPrefix(t.URL, "rest:") }

// Host is the store's host and port; empty for a claim.
func (t Ticket) Host() string {
	if t.Claim != "" {
		return ""
	}
	at := t.Address()
	if at.Port() == "" {
		return at.Host + ":443"
	}
	return at.Host
}

// Keys of a mover's Secret, beside those of its role.
const (
	TicketFile         = "repository.json"
	StoreAuthorityFile = "repository-ca.crt"
)

// Files returns the entries of a mover's Secret that hold a ticket.
func (t Ticket) Files() (map[string][]byte, error) {
	authority := t.Authority
	t.Authority = nil
	encoded, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode what a mover is told of the move's repository: %w", err)
	}
	files := map[string][]byte{TicketFile: encoded}
	if len(authority) > 0 {
		files[StoreAuthorityFile] = authority
	}
	return files, nil
}

// ReadTicket reads a ticket from the folder that a mover's Secret is mounted at; nil if there
// is none: all content goes from mover to mover then.
func ReadTicket(folder string) (*Ticket, error) {
	encoded, err := os.ReadFile(filepath.Join(folder, TicketFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	t := &Ticket{}
	if err == nil {
		err = json.Unmarshal(encoded, t)
	}
	if err == nil {
		err = t.check()
	}
	if err != nil {
		return nil, fmt.Errorf("read what this mover is told of the move's repository: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(folder, StoreAuthorityFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the authority of the object store: %w", err)
	}
	t.Authority = authority
	return t, nil
}
