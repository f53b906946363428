package restic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
)

// Remove removes all that the move has in the store, for good. Restic can remove what was
// saved and not the repository itself: of that the key and the configuration stay, a few
// hundred bytes, where the store is not one that speaks the protocol of restic's REST
// server.
func (s *Store) Remove(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	// Pods may wait for the end of this mover, and not for a store that does not answer.
	if err := s.dial(ctx); err != nil {
		return err
	}
	if s.inClaim() || s.Plain() {
		return s.erase(ctx)
	}
	if s.clean {
		return nil
	}
	err := s.clear(ctx)
	if errors.Is(err, errNoRepository) {
		return nil
	}
	return err
}

// kinds are what a repository holds, in the order in which it is removed: without its
// configuration nobody takes what is left for a repository.
var kinds = []string{"locks", "snapshots", "index", "data", "keys"}

// kept is what the names of a repository's files look like, also of those that a server
// has not finished.
var kept = regexp.MustCompile(`^[0-9a-f]{64}[.A-Za-z0-9-]*$`)

// listed bounds the list of a kind of files, in bytes.
const listed = 64 << 20

// erase removes a repository from a claim or a REST server.
func (s *Store) erase(ctx context.Context) error {
	s.known, s.clean = false, false
	if s.inClaim() {
		err := s.files(ctx, askTimeout, func(root *os.Root) error { return root.RemoveAll(s.Folder) })
		// There is no part until one is needed.
		s.clean = err == nil
		return err
	}
	transport := &http.Transport{TLSClientConfig: s.tls()}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, kind := range kinds {
		var files []struct {
			Name string `json:"name"`
		}
		found, err := s.request(ctx, client, http.MethodGet, &files, kind+"/")
		if err != nil {
			return err
		}
		for i := 0; found && i < len(files); i++ {
			if !kept.MatchString(files[i].Name) {
				return fmt.Errorf("it lists %.80q, which is no file of a repository", files[i].Name)
			}
			if _, err := s.request(ctx, client, http.MethodDelete, nil, kind, files[i].Name); err != nil {
				return err
			}
		}
	}
	_, err := s.request(ctx, client, http.MethodDelete, nil, "config")
	return err
}

// tls is how the store is known.
func (s *Store) tls() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(s.Ticket.Authority) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(s.Ticket.Authority)
	}
	return config
}

// request asks a REST server for something below the repository; false if it is not there.
func (s *Store) request(ctx context.Context, client *http.Client, method string, into any, path ...string) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.Address().JoinPath(path...).String(), nil)
	if err != nil {
		return false, fmt.Errorf("ask the object store: %w", err)
	}
	request.Header.Set("Accept", "application/vnd.x.restic.rest.v2")
	if user := s.Credentials["RESTIC_REST_USERNAME"]; user != "" {
		request.SetBasicAuth(user, s.Credentials["RESTIC_REST_PASSWORD"])
	}
	response, err := client.Do(request)
	if err != nil {
		return false, fmt.Errorf("remove what a move has in the object store: %w", err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound:
		return false, nil
	case response.StatusCode != http.StatusOK:
		return false, fmt.Errorf("it answers %s", response.Status)
	case into == nil:
		return true, nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, listed)).Decode(into); err != nil {
		return false, fmt.Errorf("read its list: %w", err)
	}
	return true, nil
}
