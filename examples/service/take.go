// Runs a command with a permit, and gives the permit back if the command fails: take URL LIMIT CLIENT COMMAND...
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"
)

type object = map[string]any

// post returns the response. It repeats a request without a response: its id is charged once.
func post(url string, body object) (response *http.Response, err error) {
	text, _ := json.Marshal(body)
	for range 5 {
		request, _ := http.NewRequest("POST", url, bytes.NewReader(text))
		request.Header.Set("Authorization", "Bearer "+os.Getenv("TIDEGATE_TOKEN"))
		if response, err = http.DefaultClient.Do(request); err == nil {
			return response, nil
		}
		time.Sleep(time.Second)
	}
	return nil, err
}

func main() {
	url, limit, client, command := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	take := object{"limits": []object{{"limit": limit, "client": client}}, "max_wait": "1s", "id": rand.Text()}
	for {
		response, err := post(url+"/v1/take", take)
		if err != nil {
			log.Fatal(err)
		}
		if response.StatusCode == 200 {
			break
		}
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if response.StatusCode != 429 || err != nil {
			problem, _ := io.ReadAll(response.Body)
			log.Fatal(string(problem))
		}
		time.Sleep(time.Duration(seconds) * time.Second)
	}
	work := exec.Command(command[0], command[1:]...)
	work.Stdout, work.Stderr = os.Stdout, os.Stderr
	if err := work.Run(); err != nil {
		post(url+"/v1/return", object{"id": take["id"]})
		log.Fatal(err)
	}
}
