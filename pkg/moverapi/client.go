package moverapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Paths of the API: GET of StatusPath answers a Status. PUT of Peers to PeersPath
// replaces them. PUT of a Task to TaskPath starts it and answers a TaskStatus; 409 if
// another one runs. With ?wait=DURATION it answers once the task has ended, or so much
// later, LongestWait at most. DELETE of TaskPath?id=ID stops the task with that ID and answers
// once it has stopped.
const (
	StatusPath = "/v1/status"
	PeersPath  = "/v1/peers"
	TaskPath   = "/v1/task"
)

// maxAnswer limits, in bytes, what is read of an answer: a mover reads a volume that is not
// trusted.
const maxAnswer = 4 << 20

// LongestWait limits for how long a request waits for the end of a task that it has started.
const LongestWait = 5 * time.Second

// timeout limits a request.
const timeout = 30 * time.Second

// handshakeTimeout limits the time in which the server must prove that it is the mover.
const handshakeTimeout = 10 * time.Second

// ErrBusy means that the mover does another task: wait for it, or cancel it.
var ErrBusy = errors.New("the mover is busy with another task")

// ErrRefused means that the mover answered, and will answer the same next time.
var ErrRefused = errors.New("the mover refused the request")

// Client sends requests to the sender of one move. Its methods are safe for concurrent use and safe
// to repeat, and try once: an error other than ErrBusy and ErrRefused means that the mover was not
// reached or the connection was cut, and the request may or may not have taken effect.
type Client struct {
	http *http.Client
}

// Dial opens a connection to the mover's control port, directly or through a port forward.
type Dial func(ctx context.Context) (net.Conn, error)

// NewClient makes a client from the files of the role Controller.
func NewClient(files Files, move string, dial Dial) (*Client, error) {
	config, err := files.Client(move, Sender)
	if err != nil {
		return nil, err
	}
	return &Client{http: &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			TLSClientConfig:     config,
			DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			TLSHandshakeTimeout: handshakeTimeout,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     timeout,
		},
	}}, nil
}

// Close closes connections that are kept for the next request.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
}

// Status returns the state of the mover.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	status := &Status{}
	return status, c.do(ctx, http.MethodGet, StatusPath, nil, status)
}

// Tell replaces the addresses at which the sender tries the receiver. The sender closes a
// connection that it dialled to another address, and keeps one that the controller joined.
// ErrRefused: an address is invalid, or the mover is an older version that takes no addresses.
func (c *Client) Tell(ctx context.Context, peers Peers) error {
	return c.do(ctx, http.MethodPut, PeersPath, peers, nil)
}

// Start starts a task, unless one with its ID was started before, waits for its end for a
// while, and answers with its state. An older mover does not wait. ErrBusy: another task runs.
func (c *Client) Start(ctx context.Context, task Task, wait time.Duration) (*TaskStatus, error) {
	status, path := &TaskStatus{}, TaskPath
	if wait > 0 {
		path += "?wait=" + wait.String()
	}
	return status, c.do(ctx, http.MethodPut, path, task, status)
}

// Cancel stops the task with an ID if it is the last one and still runs, and returns once it has
// stopped: both movers then write nothing more. A task that does not run is not changed.
func (c *Client) Cancel(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, TaskPath+"?id="+url.QueryEscape(id), nil, nil)
}

// do makes a request and decodes the answer into answer, unless that is nil.
func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode request to the mover: %w", err)
		}
		content = bytes.NewReader(encoded)
	}
	// The host name is not resolved: dial opens the connection.
	request, err := http.NewRequestWithContext(ctx, method, "https://mover"+path, content)
	if err != nil {
		return fmt.Errorf("make request to the mover: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the mover: %w", err)
	}
	defer response.Body.Close()
	received, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the mover's answer: %w", err)
	}
	switch {
	case response.StatusCode == http.StatusConflict:
		return fmt.Errorf("%w: %s", ErrBusy, strings.TrimSpace(string(received)))
	case response.StatusCode >= 400 && response.StatusCode < 500:
		return fmt.Errorf("%w: %s", ErrRefused, strings.TrimSpace(string(received)))
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("the mover answered %s", response.Status)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(received, answer); err != nil {
		return fmt.Errorf("decode the mover's answer: %w", err)
	}
	return nil
}
