# molattn serve on a CPU:
#
#     docker build -t molattn .
#     docker run -p 8000:8000 -e MOLATTN_TOKEN=... -v "$PWD/runs:/runs:ro" molattn serve --host 0.0.0.0 /runs/mine
FROM python:3.11-slim

# RDKit draws with these; they are not part of its wheel.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libexpat1 libxext6 libxrender1 \
    && rm -rf /var/lib/apt/lists/*

# The index of torch has its build without CUDA, 2.x.y+cpu, which pip prefers to 2.x.y.
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
        '.[excel,serve]' \
    && rm -rf /src/*

RUN useradd --create-home molattn
USER molattn
WORKDIR /home/molattn

EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health')"]

# Without MOLATTN_TOKEN it refuses to listen beyond the container.
ENTRYPOINT ["molattn"]
CMD ["serve", "--host", "0.0.0.0"]
